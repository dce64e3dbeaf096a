//! Who is registered: entries in order of arrival, found by hash or by token.
//!
//! Registering and unregistering are O(1), also in the middle of a list. The keys are
//! hashes that the caller computed, so nothing of Python runs in here.

use std::collections::HashMap;

const NIL: u32 = u32::MAX;

/// Where an entry is listed: under a hash, or with those tried every time (`None`).
pub(crate) type Key = Option<isize>;

/// Names one entry for ever: no two have the same serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    index: u32,
    serial: u64,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    item: Option<T>,
    serial: u64,
    key: Key,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NIL,
    last: NIL,
};

#[derive(Clone, Debug)]
pub(crate) struct Registry<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    hashed: HashMap<isize, List>,
    scanned: List,
    serial: u64,
}

impl<T> Registry<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            hashed: HashMap::new(),
            scanned: EMPTY,
            serial: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any entry is listed under a hash.
    pub(crate) fn has_hashed(&self) -> bool {
        !self.hashed.is_empty()
    }

    pub(crate) fn insert(&mut self, key: Key, item: T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                item: None,
                serial: 0,
                key: None,
                previous: NIL,
                next: NIL,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 entries")
        });
        let list = match key {
            None => &mut self.scanned,
            Some(hash) => self.hashed.entry(hash).or_insert(EMPTY),
        };
        let previous = std::mem::replace(&mut list.last, index);
        if previous == NIL {
            list.first = index;
        } else {
            self.slots[previous as usize].next = index;
        }
        self.serial += 1;
        let serial = self.serial;
        self.slots[index as usize] = Slot {
            item: Some(item),
            serial,
            key,
            previous,
            next: NIL,
        };
        Token { index, serial }
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        slot.item.as_mut().filter(|_| slot.serial == token.serial)
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.serial != token.serial {
            return None;
        }
        let item = slot.item.take()?;
        let (key, previous, next) = (slot.key, slot.previous, slot.next);
        if previous != NIL {
            self.slots[previous as usize].next = next;
        }
        if next != NIL {
            self.slots[next as usize].previous = previous;
        }
        match key {
            None => unlink(&mut self.scanned, previous, next),
            Some(hash) => {
                if let Some(list) = self.hashed.get_mut(&hash) {
                    unlink(list, previous, next);
                    if list.first == NIL {
                        self.hashed.remove(&hash);
                    }
                }
            }
        }
        self.free.push(token.index);
        if self.free.len() == self.slots.len() {
            self.clear();
        }
        Some(item)
    }

    /// Take out the first entry of those without a hash.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let index = self.scanned.first;
        if index == NIL {
            return None;
        }
        self.remove(self.token(index))
    }

    /// Take all entries out: those without a hash first, in order.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut items = Vec::with_capacity(self.len());
        let mut index = self.scanned.first;
        while let Some(slot) = self.slots.get_mut(index as usize) {
            items.extend(slot.item.take());
            index = slot.next;
        }
        if self.has_hashed() {
            items.extend(self.slots.iter_mut().filter_map(|slot| slot.item.take()));
        }
        self.clear();
        items
    }

    /// The entries that a value with this hash may concern, those under it first;
    /// without a hash, all.
    pub(crate) fn candidates(&self, hash: Option<isize>) -> impl Iterator<Item = (Token, &T)> {
        let under_hash = hash
            .and_then(|hash| self.hashed.get(&hash))
            .map_or(NIL, |list| list.first);
        let listed = self.list(under_hash).chain(self.list(self.scanned.first));
        let all = hash
            .is_none()
            .then(|| self.slots.iter().enumerate())
            .into_iter()
            .flatten()
            .filter_map(|(index, slot)| {
                let index = u32::try_from(index).expect("fewer than 2^32 entries");
                let item = slot.item.as_ref()?;
                slot.key.map(|_| (self.token(index), item))
            });
        all.chain(listed)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.item.as_ref())
    }

    fn list(&self, first: u32) -> impl Iterator<Item = (Token, &T)> {
        let mut index = first;
        std::iter::from_fn(move || {
            let slot = self.slots.get(index as usize)?;
            let token = self.token(index);
            index = slot.next;
            slot.item.as_ref().map(|item| (token, item))
        })
    }

    fn token(&self, index: u32) -> Token {
        Token {
            index,
            serial: self.slots[index as usize].serial,
        }
    }

    /// Start over with nothing registered, and give back what a peak has allocated.
    fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.hashed.clear();
        self.scanned = EMPTY;
        if self.slots.capacity() > 4096 {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        if self.hashed.capacity() > 4096 {
            self.hashed = HashMap::new();
        }
    }
}

fn unlink(list: &mut List, previous: u32, next: u32) {
    if previous == NIL {
        list.first = next;
    }
    if next == NIL {
        list.last = previous;
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;

    fn found(registry: &Registry<&'static str>, hash: Option<isize>) -> Vec<&'static str> {
        registry.candidates(hash).map(|(_, item)| *item).collect()
    }

    #[test]
    fn a_hash_finds_its_own_entries_in_order_and_those_without_one() {
        let mut registry = Registry::new();
        registry.insert(Some(1), "one");
        registry.insert(None, "any");
        registry.insert(Some(2), "two");
        registry.insert(Some(1), "uno");
        assert_eq!(found(&registry, Some(1)), ["one", "uno", "any"]);
        assert_eq!(found(&registry, Some(3)), ["any"]);
        assert_eq!(found(&registry, None), ["one", "two", "uno", "any"]);
    }

    #[test]
    fn removing_from_anywhere_keeps_the_order_and_voids_the_token() {
        let mut registry = Registry::new();
        let tokens: Vec<_> = ["a", "b", "c", "d"]
            .map(|item| registry.insert(Some(7), item))
            .into();
        assert_eq!(registry.remove(tokens[1]), Some("b"));
        assert_eq!(registry.remove(tokens[1]), None);
        assert_eq!(registry.remove(tokens[3]), Some("d"));
        assert_eq!(found(&registry, Some(7)), ["a", "c"]);
        let reused = registry.insert(Some(7), "e");
        assert_eq!(registry.remove(tokens[3]), None);
        assert_eq!(registry.get_mut(reused), Some(&mut "e"));
        assert_eq!(found(&registry, Some(7)), ["a", "c", "e"]);
        assert_eq!(registry.remove(tokens[0]), Some("a"));
        assert_eq!(registry.remove(tokens[2]), Some("c"));
        assert_eq!(registry.remove(reused), Some("e"));
        assert!(registry.is_empty() && !registry.has_hashed());
    }

    #[test]
    fn draining_takes_everything_and_voids_all_tokens() {
        let mut registry = Registry::new();
        let token = registry.insert(None, "parked");
        registry.insert(Some(1), "hashed");
        assert_eq!(registry.drain(), ["parked", "hashed"]);
        assert!(registry.is_empty());
        registry.insert(None, "next");
        assert_eq!(registry.remove(token), None);
        assert_eq!(registry.len(), 1);
    }
}
