//! Ctrl-C while native code runs: in code that tells how far it went, and in code that looks at no signals.
#![allow(unsafe_code)] // The process ends without the interpreter, whose lock somebody may hold.

use crate::errors;
use ahbm_engine::interrupt::watched;
use ahbm_findings::Diagnostic;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// One end of a pair of sockets, as Python's `socket.detach` gives it away.
#[cfg(unix)]
mod end {
    use std::os::fd::FromRawFd;
    pub(super) use std::os::fd::RawFd as Raw;
    pub(super) use std::os::unix::net::UnixStream as Stream;

    /// # Safety
    /// Nobody else owns the socket.
    pub(super) unsafe fn of(raw: Raw) -> Stream {
        // SAFETY: as promised.
        unsafe { Stream::from_raw_fd(raw) }
    }
}
#[cfg(windows)]
mod end {
    pub(super) use std::net::TcpStream as Stream;
    use std::os::windows::io::FromRawSocket;
    pub(super) use std::os::windows::io::RawSocket as Raw;

    /// # Safety
    /// Nobody else owns the socket.
    pub(super) unsafe fn of(raw: Raw) -> Stream {
        // SAFETY: as promised.
        unsafe { Stream::from_raw_socket(raw) }
    }
}

/// Number of the signal of Ctrl-C.
const SIGINT: u8 = 2;
/// Exit code of a process that was interrupted: 128 and the signal's number.
const INTERRUPTED: i32 = 130;
/// Time that the interpreter's lock is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

unsafe extern "C" {
    fn _exit(code: i32) -> !;
}

/// Runs `work` with the interpreter lock released. Pending signals are looked at wherever it spends steps
/// ([`ahbm_engine::interrupt`]); what their handlers raise ends it and is raised.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Vec<Diagnostic>> + Send,
) -> PyResult<T> {
    let (outcome, signal) = py.detach(|| {
        let signal = Rc::new(RefCell::new(None));
        let raised = Rc::clone(&signal);
        let unwanted = move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(error) => {
                raised.replace(Some(error));
                true
            }
        };
        let outcome = errors::guard(|| watched(unwanted, work));
        (outcome, signal.take())
    });
    match signal {
        Some(error) => Err(error),
        None => outcome.map_err(|findings| errors::raise(py, &findings)),
    }
}

/// Waits for the bytes of signals and ends the process where Ctrl-C goes unheard.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Watch {
    over: Arc<AtomicBool>,
}

#[pymethods]
impl Watch {
    /// Reads the numbers of signals from a socket (`signal.set_wakeup_fd` writes them to its other end) in a thread of its
    /// own, which owns it: `socket` is what `detach` returns. `grace_s` seconds after Ctrl-C it calls `unheard`; when that returns True, or cannot be
    /// called because native code keeps the interpreter's lock, the process ends at once with exit code 130.
    #[new]
    fn new(socket: end::Raw, grace_s: f64, unheard: Py<PyAny>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        // SAFETY: the caller gives the socket away.
        let signals = unsafe { end::of(socket) };
        let unheard = Arc::new(unheard);
        thread::spawn(move || watch(signals, Duration::from_secs_f64(grace_s), &ended, &unheard));
        Self { over }
    }

    /// Nothing ends the process any more.
    fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

fn watch(mut signals: end::Stream, grace: Duration, over: &Arc<AtomicBool>, unheard: &Arc<Py<PyAny>>) {
    let mut number = [0];
    while signals.read_exact(&mut number).is_ok() {
        if number[0] != SIGINT {
            continue;
        }
        thread::sleep(grace);
        if over.load(Ordering::SeqCst) {
            break;
        }
        let (answer, answered) = mpsc::channel();
        let (ask, ended) = (Arc::clone(unheard), Arc::clone(over));
        thread::spawn(move || {
            // An interpreter that ends lets no thread in.
            if !ended.load(Ordering::SeqCst) {
                let told = Python::attach(|py| ask.call0(py)?.is_truthy(py)).unwrap_or(true);
                let _ = answer.send(told);
            }
        });
        let end = answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            if !over.load(Ordering::SeqCst) {
                eprintln!("AHBM-I101 interrupted: in native code");
            }
            true
        });
        if end && !over.load(Ordering::SeqCst) {
            // SAFETY: `_exit` takes any number and does not return.
            unsafe { _exit(INTERRUPTED) }
        }
    }
}
