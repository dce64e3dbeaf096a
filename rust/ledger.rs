//! A queue's account: what is in it, what is unfinished, whether it takes more, and who
//! is to be woken next.
//!
//! Who waits is woken, not handed an item: it takes one when its turn has come, so that no
//! item leaves the queue for somebody who has gone. The other side of that is a rule: who
//! was woken and does not take what it was woken for passes that on. So at any moment as
//! many getters have been woken and not yet looked as there are items, or no getter is
//! waiting; likewise putters and free places.

use std::collections::VecDeque;

use crate::heap::{Entry, Heap, Question, Rank, Search};
use crate::registry::{Registry, Token};

#[derive(Clone, Debug)]
pub(crate) enum Buffer<T> {
    Fifo(VecDeque<T>),
    Lifo(Vec<T>),
    Heap(Heap<T>),
    /// The items are kept elsewhere, and so it is decided there whether there are any, or
    /// places; the ledger only counts.
    Elsewhere,
}

/// What one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Get,
    Put,
    Join,
}

/// Why something was not put.
#[derive(Debug)]
pub(crate) enum Refusal<T> {
    Full,
    ShutDown,
    /// To be answered first.
    Compare(Question<T>),
    /// It takes another way: a heap wants an entry, and some queues keep their items elsewhere.
    Elsewhere,
}

/// The getter to be woken, if one waits; or what was not put, and why.
pub(crate) type Put<E, T, W> = Result<Option<W>, (E, Refusal<T>)>;

#[derive(Debug)]
pub(crate) enum Get<T, W> {
    /// An entry comes whole, for its key is not to be dropped in here.
    Item {
        item: T,
        key: Option<T>,
        /// The one to be woken, if one waits.
        putter: Option<W>,
    },
    Empty,
    ShutDown,
    /// To be answered first.
    Compare(Question<T>),
    Elsewhere,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) unfinished: u64,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger<T, W> {
    buffer: Buffer<T>,
    /// 0: no limit.
    capacity: usize,
    shut_down: bool,
    counts: Counts,
    getters: Registry<W>,
    putters: Registry<W>,
    joiners: Registry<W>,
}

impl<T, W> Ledger<T, W> {
    pub(crate) fn new(buffer: Buffer<T>, capacity: usize) -> Self {
        Self {
            buffer,
            capacity,
            shut_down: false,
            counts: Counts::default(),
            getters: Registry::new(),
            putters: Registry::new(),
            joiners: Registry::new(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.buffer {
            Buffer::Fifo(items) => items.len(),
            Buffer::Lifo(items) => items.len(),
            Buffer::Heap(heap) => heap.len(),
            Buffer::Elsewhere => 0,
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.capacity != 0 && self.len() >= self.capacity
    }

    pub(crate) const fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    pub(crate) const fn is_elsewhere(&self) -> bool {
        matches!(self.buffer, Buffer::Elsewhere)
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn waiting(&self, side: Side) -> usize {
        self.side(side).len()
    }

    /// Put an item. A heap takes only entries.
    #[inline]
    pub(crate) fn put(&mut self, item: T) -> Put<T, T, W> {
        if self.shut_down {
            return Err((item, Refusal::ShutDown));
        }
        if self.is_full() {
            return Err((item, Refusal::Full));
        }
        match &mut self.buffer {
            Buffer::Fifo(items) => items.push_back(item),
            Buffer::Lifo(items) => items.push(item),
            Buffer::Heap(_) | Buffer::Elsewhere => return Err((item, Refusal::Elsewhere)),
        }
        Ok(self.note_put())
    }

    /// Put an item, if nobody has to be woken and nothing asked. A heap is given its rank.
    #[inline]
    pub(crate) fn put_quietly(
        &mut self,
        item: impl FnOnce() -> T,
        rank: impl FnOnce() -> Rank,
    ) -> bool {
        if self.shut_down || self.is_full() || !self.getters.is_empty() {
            return false;
        }
        let put = match &mut self.buffer {
            Buffer::Fifo(items) => {
                items.push_back(item());
                true
            }
            Buffer::Lifo(items) => {
                items.push(item());
                true
            }
            Buffer::Heap(heap) => heap.push_ranked(rank(), item),
            Buffer::Elsewhere => false,
        };
        if put {
            // Nobody: see above.
            let _getter = self.note_put();
        }
        put
    }

    /// Take the next item, if nobody has to be woken and nothing asked. There are no keys.
    #[inline]
    pub(crate) fn get_quietly(&mut self) -> Option<T> {
        if !self.putters.is_empty() {
            return None;
        }
        let item = match &mut self.buffer {
            Buffer::Fifo(items) => items.pop_front(),
            Buffer::Lifo(items) => items.pop(),
            Buffer::Heap(heap) => heap.pop_ranked().map(|entry| entry.item),
            Buffer::Elsewhere => None,
        }?;
        // Nobody: see above.
        let _putter = self.note_get();
        Some(item)
    }

    /// Put an entry into a heap. Until it is in, nothing has changed.
    pub(crate) fn put_entry(
        &mut self,
        entry: Entry<T>,
        search: &mut Search,
        copy: impl Fn(&T) -> T,
    ) -> Put<Entry<T>, T, W> {
        if self.shut_down {
            return Err((entry, Refusal::ShutDown));
        }
        if self.is_full() {
            return Err((entry, Refusal::Full));
        }
        let Buffer::Heap(heap) = &mut self.buffer else {
            return Err((entry, Refusal::Elsewhere));
        };
        match heap.push(entry, search, copy) {
            Ok(()) => Ok(self.note_put()),
            Err((entry, question)) => Err((entry, Refusal::Compare(question))),
        }
    }

    /// Count an item that has been put elsewhere; the getter to be woken.
    #[inline]
    pub(crate) fn note_put(&mut self) -> Option<W> {
        self.counts.unfinished += 1;
        self.counts.accepted += 1;
        self.getters.pop()
    }

    /// Take the next item. `search` is for a heap only.
    #[inline]
    pub(crate) fn get(&mut self, search: &mut Search, copy: impl Fn(&T) -> T) -> Get<T, W> {
        let item = match &mut self.buffer {
            Buffer::Fifo(items) => items.pop_front().map(|item| (item, None)),
            Buffer::Lifo(items) => items.pop().map(|item| (item, None)),
            Buffer::Heap(heap) => match heap.pop(search, copy) {
                Ok(entry) => entry.map(|entry| (entry.item, entry.key)),
                Err(question) => return Get::Compare(question),
            },
            Buffer::Elsewhere => return Get::Elsewhere,
        };
        match item {
            Some((item, key)) => Get::Item {
                item,
                key,
                putter: self.note_get(),
            },
            None if self.shut_down => Get::ShutDown,
            None => Get::Empty,
        }
    }

    /// Count an item that has been taken from elsewhere; the putter to be woken.
    #[inline]
    pub(crate) fn note_get(&mut self) -> Option<W> {
        self.counts.delivered += 1;
        self.putters.pop()
    }

    /// Register somebody who waits, unless there is something to look at already.
    pub(crate) fn wait(&mut self, side: Side, waiter: W) -> Result<Token, W> {
        let ready = match side {
            Side::Get => self.shut_down || self.len() != 0,
            Side::Put => self.shut_down || (!self.is_full() && !self.is_elsewhere()),
            Side::Join => self.counts.unfinished == 0,
        };
        if ready {
            return Err(waiter);
        }
        Ok(self.side_mut(side).insert(None, waiter))
    }

    /// Somebody no longer waits. None if it has been taken off the list to be woken.
    pub(crate) fn leave(&mut self, side: Side, token: Token) -> Option<W> {
        self.side_mut(side).remove(token)
    }

    /// Who is to be woken in the place of one who was and does not take what there is.
    pub(crate) fn next(&mut self, side: Side) -> Option<W> {
        let worth_it = match side {
            Side::Get => self.len() != 0 || self.is_elsewhere(),
            Side::Put => !self.is_full(),
            Side::Join => false,
        };
        worth_it.then(|| self.side_mut(side).pop()).flatten()
    }

    /// One item is finished. None if there was none left to be; else those who have waited
    /// for the last one.
    pub(crate) fn task_done(&mut self) -> Option<Vec<W>> {
        self.counts.unfinished = self.counts.unfinished.checked_sub(1)?;
        Some(self.finished())
    }

    /// Take no more items; all who wait to get or put are to be woken.
    pub(crate) fn shut_down(&mut self) -> Vec<W> {
        self.shut_down = true;
        let mut waiters = self.getters.drain();
        waiters.extend(self.putters.drain());
        waiters
    }

    /// Drop everything that is in: the items, in the order in which they were to be got. A
    /// heap's come in the order in which they were put.
    pub(crate) fn drop_all(&mut self) -> Vec<Entry<T>> {
        let plain = |item| Entry::new(item, None, Rank::Opaque);
        let entries: Vec<_> = match &mut self.buffer {
            Buffer::Fifo(items) => std::mem::take(items).into_iter().map(plain).collect(),
            Buffer::Lifo(items) => std::mem::take(items).into_iter().rev().map(plain).collect(),
            Buffer::Heap(heap) => heap.drain(),
            Buffer::Elsewhere => Vec::new(),
        };
        self.note_dropped(entries.len());
        entries
    }

    /// Everything that it holds of the items, keys included.
    pub(crate) fn into_items(self) -> Vec<T> {
        match self.buffer {
            Buffer::Fifo(items) => items.into(),
            Buffer::Lifo(items) => items,
            Buffer::Heap(mut heap) => heap
                .drain()
                .into_iter()
                .flat_map(|entry| [Some(entry.item), entry.key])
                .flatten()
                .collect(),
            Buffer::Elsewhere => Vec::new(),
        }
    }

    /// Count items that have been dropped.
    pub(crate) fn note_dropped(&mut self, count: usize) {
        let count = count as u64;
        self.counts.dropped += count;
        self.counts.unfinished = self.counts.unfinished.saturating_sub(count);
    }

    /// Those who have waited for everything to be finished, if it is.
    pub(crate) fn finished(&mut self) -> Vec<W> {
        if self.counts.unfinished == 0 && !self.joiners.is_empty() {
            self.joiners.drain()
        } else {
            Vec::new()
        }
    }

    pub(crate) const fn heap(&self) -> Option<&Heap<T>> {
        match &self.buffer {
            Buffer::Heap(heap) => Some(heap),
            _ => None,
        }
    }

    /// Look at every item, in the order of the buffer.
    pub(crate) fn each_item<E>(&self, mut look: impl FnMut(&T) -> Result<(), E>) -> Result<(), E> {
        match &self.buffer {
            Buffer::Fifo(items) => items.iter().try_for_each(look),
            Buffer::Lifo(items) => items.iter().try_for_each(look),
            Buffer::Heap(heap) => heap.entries().try_for_each(|entry| look(&entry.item)),
            Buffer::Elsewhere => Ok(()),
        }
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        let waiting = [&self.getters, &self.putters, &self.joiners];
        waiting.into_iter().flat_map(Registry::items)
    }

    const fn side(&self, side: Side) -> &Registry<W> {
        match side {
            Side::Get => &self.getters,
            Side::Put => &self.putters,
            Side::Join => &self.joiners,
        }
    }

    const fn side_mut(&mut self, side: Side) -> &mut Registry<W> {
        match side {
            Side::Get => &mut self.getters,
            Side::Put => &mut self.putters,
            Side::Join => &mut self.joiners,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::{Buffer, Get, Ledger, Refusal, Side};
    use crate::heap::Search;
    use crate::registry::Token;

    type Item = u8;
    type Who = usize;

    fn fifo(capacity: usize) -> Ledger<Item, Who> {
        Ledger::new(Buffer::Fifo(VecDeque::new()), capacity)
    }

    fn get(ledger: &mut Ledger<Item, Who>) -> Get<Item, Who> {
        ledger.get(&mut Search::default(), |item| *item)
    }

    #[test]
    fn task_done_is_refused_once_too_often() {
        let mut ledger = fifo(0);
        assert_eq!(ledger.task_done(), None);
        assert!(ledger.put(1).is_ok());
        let joiner = ledger.wait(Side::Join, 7).unwrap();
        assert!(matches!(get(&mut ledger), Get::Item { item: 1, .. }));
        assert_eq!(ledger.task_done(), Some(vec![7]));
        assert_eq!(ledger.leave(Side::Join, joiner), None);
        assert_eq!(ledger.task_done(), None);
        assert_eq!(ledger.wait(Side::Join, 7), Err(7));
    }

    #[test]
    fn what_is_dropped_comes_in_the_order_in_which_it_would_have_been_got() {
        let stack = Buffer::Lifo(Vec::new());
        for (buffer, order) in [(Buffer::Fifo(VecDeque::new()), [1, 2]), (stack, [2, 1])] {
            let mut ledger: Ledger<Item, Who> = Ledger::new(buffer, 0);
            for item in [1, 2] {
                assert!(ledger.put(item).is_ok());
            }
            let dropped = ledger.drop_all().into_iter().map(|entry| entry.item);
            assert_eq!(dropped.collect::<Vec<_>>(), order);
            assert_eq!(
                (ledger.counts().unfinished, ledger.counts().dropped),
                (0, 2)
            );
        }
    }

    /// One task, step by step as an event loop would run it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Task {
        /// It has not had its first step, or was woken and has not looked yet.
        Ready(Role),
        Waiting(Role, Token),
        Done,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Role {
        Put(Item),
        Get,
        /// As `Get`, and finishes what it got.
        Work,
        Join,
    }

    impl Role {
        fn side(self) -> Side {
            match self {
                Self::Put(_) => Side::Put,
                Self::Get | Self::Work => Side::Get,
                Self::Join => Side::Join,
            }
        }
    }

    /// A queue, its tasks, and what has become of the items.
    #[derive(Clone, Debug)]
    struct World {
        ledger: Ledger<Item, Who>,
        tasks: Vec<Task>,
        woken: Vec<bool>,
        got: Vec<Item>,
        dropped: Vec<Item>,
        refused: Vec<Item>,
        /// How many may still be cancelled.
        cancels: u8,
        /// What may still happen to the queue from outside.
        events: Vec<Event>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        /// Somebody takes an item without waiting.
        Steal,
        ShutDown,
        Abort,
    }

    impl World {
        fn new(capacity: usize, roles: &[Role], events: &[Event], cancels: u8) -> Self {
            Self {
                ledger: fifo(capacity),
                tasks: roles.iter().map(|role| Task::Ready(*role)).collect(),
                woken: vec![false; roles.len()],
                got: Vec::new(),
                dropped: Vec::new(),
                refused: Vec::new(),
                cancels,
                events: events.to_vec(),
            }
        }

        fn wake(&mut self, who: impl IntoIterator<Item = Who>) {
            for who in who {
                let Task::Waiting(role, _) = self.tasks[who] else {
                    panic!("{who} was woken and does not wait");
                };
                self.tasks[who] = Task::Ready(role);
                self.woken[who] = true;
            }
        }

        /// Everything that can happen next.
        fn moves(&self) -> Vec<Self> {
            let mut next = Vec::new();
            for (who, task) in self.tasks.iter().enumerate() {
                if let Task::Ready(role) = task {
                    let mut world = self.clone();
                    world.step(who, *role);
                    next.push(world);
                }
                if self.cancels > 0 && *task != Task::Done {
                    let mut world = self.clone();
                    world.cancel(who);
                    next.push(world);
                }
            }
            for (index, event) in self.events.iter().enumerate() {
                let mut world = self.clone();
                world.events.remove(index);
                world.happen(*event);
                next.push(world);
            }
            next
        }

        fn step(&mut self, who: Who, role: Role) {
            let was_woken = std::mem::take(&mut self.woken[who]);
            let over = match role {
                Role::Put(item) => match self.ledger.put(item) {
                    Ok(getter) => {
                        self.wake(getter);
                        true
                    }
                    Err((item, Refusal::ShutDown)) => {
                        self.refused.push(item);
                        true
                    }
                    Err((_, Refusal::Full)) => false,
                    Err((_, refusal)) => panic!("{refusal:?}"),
                },
                Role::Get | Role::Work => match get(&mut self.ledger) {
                    Get::Item { item, putter, .. } => {
                        self.wake(putter);
                        self.got.push(item);
                        if role == Role::Work {
                            let joiners = self.ledger.task_done().expect("it was got");
                            self.wake(joiners);
                        }
                        true
                    }
                    Get::ShutDown => true,
                    Get::Empty => false,
                    other => panic!("{other:?}"),
                },
                // Woken for the count was zero, whatever it is by now.
                Role::Join => was_woken || self.ledger.counts().unfinished == 0,
            };
            self.tasks[who] = if over {
                Task::Done
            } else {
                let token = self.ledger.wait(role.side(), who);
                Task::Waiting(role, token.expect("there was nothing to look at"))
            };
        }

        fn cancel(&mut self, who: Who) {
            self.cancels -= 1;
            let (role, left) = match self.tasks[who] {
                Task::Waiting(role, token) => (role, self.ledger.leave(role.side(), token)),
                Task::Ready(role) => (role, None),
                Task::Done => unreachable!(),
            };
            assert_eq!(left.is_some(), matches!(self.tasks[who], Task::Waiting(..)));
            if let Role::Put(item) = role {
                self.refused.push(item);
            }
            self.tasks[who] = Task::Done;
            if std::mem::take(&mut self.woken[who]) {
                let next = self.ledger.next(role.side());
                self.wake(next);
            }
        }

        fn happen(&mut self, event: Event) {
            if event == Event::Steal {
                if let Get::Item { item, putter, .. } = get(&mut self.ledger) {
                    self.wake(putter);
                    self.got.push(item);
                }
                return;
            }
            let waiters = self.ledger.shut_down();
            if event == Event::Abort {
                let dropped = self.ledger.drop_all();
                self.dropped
                    .extend(dropped.into_iter().map(|entry| entry.item));
            }
            let joiners = self.ledger.finished();
            self.wake(waiters);
            self.wake(joiners);
        }

        fn waits(&self, side: Side) -> bool {
            let waiting =
                |task: &Task| matches!(task, Task::Waiting(role, _) if role.side() == side);
            self.tasks.iter().any(waiting)
        }

        /// What holds at every moment.
        fn check(&self) {
            let ledger = &self.ledger;
            let counts = ledger.counts();
            let inside = ledger.len();
            let gone = self.got.len() + self.dropped.len();
            assert_eq!(counts.accepted, (inside + gone) as u64, "{self:?}");
            assert_eq!(counts.delivered, self.got.len() as u64, "{self:?}");
            assert!(
                ledger.capacity == 0 || inside <= ledger.capacity,
                "{self:?}"
            );
            let woken = |side: Side| {
                let is_woken = |(task, woken): (&Task, &bool)| {
                    *woken && matches!(task, Task::Ready(role) if role.side() == side)
                };
                self.tasks
                    .iter()
                    .zip(&self.woken)
                    .filter(|pair| is_woken((pair.0, pair.1)))
                    .count()
            };
            // Nobody sleeps while there is something for them that nobody else was woken for.
            assert!(
                !self.waits(Side::Get) || inside <= woken(Side::Get),
                "{self:?}"
            );
            if self.waits(Side::Put) {
                assert!(ledger.capacity - inside <= woken(Side::Put), "{self:?}");
            }
            assert!(!self.waits(Side::Join) || counts.unfinished > 0, "{self:?}");
            if ledger.is_shut_down() {
                assert!(!self.waits(Side::Get) && !self.waits(Side::Put), "{self:?}");
            }
        }

        /// What holds when nothing can happen any more: each item was put in one place.
        fn check_end(&self) {
            let pending = self.tasks.iter().filter_map(|task| match task {
                Task::Waiting(Role::Put(item), _) => Some(*item),
                _ => None,
            });
            let mut inside = Vec::new();
            let seen: Result<(), ()> = self.ledger.each_item(|item| {
                inside.push(*item);
                Ok(())
            });
            assert!(seen.is_ok());
            let mut all: Vec<Item> = [&self.got, &self.dropped, &self.refused, &inside]
                .into_iter()
                .flatten()
                .copied()
                .chain(pending)
                .collect();
            all.sort_unstable();
            let count = u8::try_from(all.len()).unwrap();
            assert_eq!(all, (1..=count).collect::<Vec<_>>(), "{self:?}");
        }

        /// Worlds that look the same from here go on the same.
        fn key(&self) -> String {
            let tasks: Vec<_> = self
                .tasks
                .iter()
                .map(|task| match task {
                    Task::Ready(role) => format!("ready {role:?}"),
                    Task::Waiting(role, _) => format!("waits {role:?}"),
                    Task::Done => "done".to_owned(),
                })
                .collect();
            let order = |side| self.ledger.side(side).candidates(None).map(|(_, who)| *who);
            let waiting = [Side::Get, Side::Put].map(|side| order(side).collect::<Vec<_>>());
            format!(
                "{tasks:?} {waiting:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {} {:?}",
                self.woken,
                self.ledger.buffer,
                self.ledger.shut_down,
                self.ledger.counts,
                self.got,
                self.dropped,
                self.refused,
                self.cancels,
                self.events,
            )
        }
    }

    /// Try every order in which it can go; returns in how many states it can be.
    fn explore(start: World) -> usize {
        let mut seen = HashSet::from([start.key()]);
        let mut open = vec![start];
        while let Some(world) = open.pop() {
            world.check();
            let moves = world.moves();
            if moves.is_empty() {
                world.check_end();
            }
            for next in moves {
                if seen.insert(next.key()) {
                    open.push(next);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn every_interleaving_of_a_bounded_queue() {
        use Role::{Get, Put, Work};
        let roles = [Put(1), Put(2), Put(3), Get, Work];
        let states = explore(World::new(1, &roles, &[Event::Steal], 2));
        assert!(states > 1_000, "only {states}");
    }

    #[test]
    fn every_interleaving_with_a_shutdown() {
        use Role::{Get, Join, Put, Work};
        for events in [
            vec![Event::ShutDown],
            vec![Event::Abort],
            vec![Event::ShutDown, Event::Abort],
        ] {
            for capacity in [0, 1, 2] {
                let roles = [Put(1), Put(2), Work, Get, Join];
                let states = explore(World::new(capacity, &roles, &events, 1));
                assert!(states > 500, "only {states}");
            }
        }
    }

    #[test]
    fn every_interleaving_of_cancelled_waiters() {
        use Role::{Get, Put};
        let roles = [Get, Get, Get, Put(1), Put(2)];
        let states = explore(World::new(0, &roles, &[Event::Steal], 3));
        assert!(states > 1_000, "only {states}");
        let roles = [Put(1), Put(2), Put(3), Put(4), Get];
        let states = explore(World::new(1, &roles, &[Event::Steal], 3));
        assert!(states > 1_000, "only {states}");
    }
}
