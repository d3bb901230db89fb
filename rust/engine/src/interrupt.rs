//! Long computations that somebody may end.
//!
//! A loop that may last tells how far it went ([`spend`]). Inside [`watched`], somebody is asked every now and then
//! whether the work is still wanted; if not, it unwinds to whoever catches unwinding. Results cannot depend on it.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Elementary steps, of a nanosecond or a few, between two looks at the clock.
const STEPS: u64 = 1 << 17;
/// Time between two questions.
const PERIOD: Duration = Duration::from_millis(40);

/// The payload with which unwanted work unwinds.
#[derive(Debug)]
pub struct Interrupted;

#[derive(Clone)]
struct Watch {
    unwanted: Rc<dyn Fn() -> bool>,
    asked: Instant,
}

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Tells of `steps` elementary steps done or about to be done.
///
/// # Panics
/// Unwinds with [`Interrupted`] when the work is unwanted. No panic hook is called.
#[inline]
pub fn spend(steps: u64) {
    let spent = SPENT.get().saturating_add(steps);
    SPENT.set(spent);
    if spent >= STEPS {
        look();
    }
}

#[cold]
fn look() {
    SPENT.set(0);
    let due = WATCH.with_borrow_mut(|watch| {
        let watch = watch.as_mut().filter(|watch| watch.asked.elapsed() >= PERIOD)?;
        watch.asked = Instant::now();
        Some(Rc::clone(&watch.unwanted))
    });
    if due.is_some_and(|unwanted| unwanted()) {
        resume_unwind(Box::new(Interrupted));
    }
}

/// Runs `work` in this thread; `unwanted` is asked about 20 times a second.
///
/// # Panics
/// Unwinds with [`Interrupted`] when the answer is yes.
pub fn watched<T>(unwanted: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    struct Outer(Option<Watch>);
    impl Drop for Outer {
        fn drop(&mut self) {
            WATCH.set(self.0.take());
        }
    }
    let watch = Watch { unwanted: Rc::new(unwanted), asked: Instant::now() };
    let _outer = Outer(WATCH.replace(Some(watch)));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn stopped(work: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_err_and(|payload| payload.is::<Interrupted>())
    }

    #[test]
    fn unwanted_work_ends_and_the_next_does_not() {
        let endless = || loop {
            spend(STEPS);
        };
        assert!(stopped(|| watched(|| true, endless)));
        // Nobody is asked any more.
        assert!(!stopped(|| (0..1000).for_each(|_| spend(STEPS))));
    }

    #[test]
    fn the_inner_one_of_two_is_asked() {
        let begin = Instant::now();
        let wait = || {
            while begin.elapsed() < 3 * PERIOD {
                spend(STEPS);
            }
        };
        assert!(!stopped(|| watched(|| true, || watched(|| false, wait))));
    }
}
