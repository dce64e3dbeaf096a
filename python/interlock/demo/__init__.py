"""The demo: `python -m interlock.demo`. See what gets lost elsewhere, on your own machine."""
