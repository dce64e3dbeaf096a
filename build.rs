//! Makes PyO3's `cfg`s (`Py_3_12`, `Py_GIL_DISABLED`, …) known to this crate.

fn main() {
    if std::env::var_os("CARGO_FEATURE_PYTHON").is_some() {
        pyo3_build_config::use_pyo3_cfgs();
    }
    println!("cargo:rerun-if-changed=build.rs");
}
