//! Calls a kernel once to record it, and explains what goes wrong.

use crate::capture::{Capture, Launch};
use crate::errors;
use crate::handle::{Handle, MemoryRef};
use crate::origin;
use crate::tl::Tl;
use ahbm_findings::Diagnostic;
use ahbm_program::{Body, Origins};
use pyo3::exceptions::{PyAttributeError, PyKeyboardInterrupt, PyRecursionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};
use std::sync::Arc;

/// Checks the kernel's parameters against the call, before anything runs.
pub(crate) fn check_signature(
    py: Python<'_>,
    launch: &Launch,
    kernel: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let signature = py.import(intern!(py, "inspect"))?.call_method1(intern!(py, "signature"), (kernel,))?;
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "tl"), py.None())?;
    let Err(error) = signature.getattr("bind")?.call(args, Some(&keywords)) else { return Ok(()) };
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error);
    }
    let expected = format!("{}{}", launch.kernel, signature);
    let why = error.value(py).to_string();
    let message = format!("{expected} cannot be called with {} positional arguments and tl=: {why}", args.len());
    let finding = Diagnostic::new("AHBM-K212", message).site(launch.label(), origin_of(kernel)).hint(
        "a kernel takes t_ptr, what kernel_args returns, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, and tl",
    );
    Err(errors::raise_one(py, finding))
}

/// Calls the kernel. Garbage collection pauses meanwhile: when a cycle's handles die must not depend on
/// what else the process allocates.
#[allow(unsafe_code)] // The collector's switch has no safe wrapper.
pub(crate) fn run(
    py: Python<'_>,
    kernel: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    capture: &Arc<Capture>,
) -> PyResult<()> {
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "tl"), Bound::new(py, Tl { capture: Arc::clone(capture) })?)?;
    // SAFETY: the interpreter lock is held.
    let collecting = unsafe { ffi::PyGC_Disable() } == 1;
    let outcome = kernel.call(args, Some(&keywords));
    if collecting {
        // SAFETY: the interpreter lock is held.
        unsafe { ffi::PyGC_Enable() };
    }
    match outcome {
        Ok(returned) if returned.is_none() => Ok(()),
        Ok(returned) => Err(refuse(py, &capture.launch, kernel, &returned)),
        Err(error) => Err(explain(py, &capture.launch, kernel, error)),
    }
}

/// The error that the kernel raised, as a `KernelError` that says where. Typed errors and Ctrl-C stay as they are.
/// SystemExit becomes a `KernelError` too: else it would end the program in silence, with the exit code of a success.
fn explain(py: Python<'_>, launch: &Launch, kernel: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) || errors::is_typed(py, &error) {
        return error;
    }
    let kind = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let what = error.value(py).to_string();
    let code = kernel.getattr("__code__").ok();
    let finding = if error.is_instance_of::<PyRecursionError>(py) {
        Diagnostic::new("AHBM-K211", "the kernel recursed too deep").hint("use a loop, or end the recursion")
    } else {
        let cause = "__cause__ is the kernel's own exception, with its traceback";
        let hint = meant(py, &error).map_or_else(|| cause.to_owned(), |meant| format!("{meant}; {cause}"));
        Diagnostic::new("AHBM-K210", format!("the kernel raised {kind}: {what}")).hint(hint)
    };
    let typed = errors::raise_one(py, finding.site(launch.label(), origin::of_error(py, &error, code.as_ref())));
    typed.set_cause(py, Some(error));
    typed
}

/// The hint for a name that `tl` or one of its values does not have; None for every other error.
fn meant(py: Python<'_>, error: &PyErr) -> Option<String> {
    if !error.is_instance_of::<PyAttributeError>(py) {
        return None;
    }
    let value = error.value(py);
    let object = value.getattr(intern!(py, "obj")).ok()?;
    if !(object.is_instance_of::<Tl>() || object.is_instance_of::<Handle>() || object.is_instance_of::<MemoryRef>()) {
        return None;
    }
    let names = object.dir().ok()?.iter().filter_map(|name| name.extract::<String>().ok());
    let names: Vec<String> = names.filter(|name| !name.starts_with('_')).collect();
    let hints = py.import(intern!(py, "ahbm.base.yaml_source")).ok()?;
    let name = value.getattr(intern!(py, "name")).ok()?;
    hints.call_method1(intern!(py, "did_you_mean"), (name, names)).ok()?.extract().ok()
}

/// The error for a kernel that returned something. Nobody takes a result, and a generator or a coroutine has not run.
fn refuse(py: Python<'_>, launch: &Launch, kernel: &Bound<'_, PyAny>, returned: &Bound<'_, PyAny>) -> PyErr {
    let kind = returned.get_type();
    let name = kind.name().map(|name| name.to_string()).unwrap_or_default();
    let runs_later = matches!(&*name, "generator" | "coroutine" | "async_generator");
    let (what, hint) = if runs_later {
        if let Ok(close) = returned.getattr(intern!(py, "close")) {
            // Spares the user a warning about a coroutine nobody awaited; nothing of it has run that could object.
            let _ = close.call0();
        }
        let hint = "a kernel is a plain function: no yield, no async; tl calls never block while they are recorded";
        (format!("the kernel is a {name}, of which nothing ran"), hint)
    } else {
        (format!("the kernel returned a value of type {name}"), "a kernel returns nothing: tl.store keeps its results")
    };
    errors::raise_one(py, Diagnostic::new("AHBM-K213", what).site(launch.label(), origin_of(kernel)).hint(hint))
}

/// The finding for a kernel whose two calls with equal arguments recorded two bodies: where they part. `end` is the
/// kernel's own line.
pub(crate) fn unlike(label: &str, end: &str, bodies: [&Body; 2], origins: &Origins) -> Diagnostic {
    let (at, [first, then]) = parting(end, bodies, origins);
    let message = format!("called twice with equal arguments, {label} differs in operation {at}");
    let mut finding = Diagnostic::new("AHBM-K216", message);
    for (which, (words, calls, origin)) in [("first", first), ("then", then)] {
        let calls = if calls > 1 { format!(", {calls} tl calls") } else { String::new() };
        finding = finding.site(format!("{which}: {words}{calls}"), origin);
    }
    finding.hint(
        "a kernel and its kernel_args see nothing but their arguments: no random numbers, no clock, no global that a \
         call changes, no order of a set",
    )
}

/// An operation in words, its calls and its line.
type Told = (String, u16, String);

/// The first operation in which two bodies differ, and what it is in either.
pub(crate) fn parting(end: &str, bodies: [&Body; 2], origins: &Origins) -> (usize, [Told; 2]) {
    let told = |body: &Body, at: usize| match body.ops.get(at) {
        Some(op) => (body.words(at), op.calls, origins.text(body.origins[at])),
        None => ("the end of the kernel".to_owned(), 0, end.to_owned()),
    };
    let longest = bodies[0].ops.len().max(bodies[1].ops.len());
    let at = (0..longest).find(|&at| told(bodies[0], at) != told(bodies[1], at)).unwrap_or(longest);
    (at, bodies.map(|body| told(body, at)))
}

/// The kernel's name for people.
pub(crate) fn name_of(kernel: &Bound<'_, PyAny>) -> String {
    let name = kernel.getattr("__name__").and_then(|name| name.extract());
    name.unwrap_or_else(|_| kernel.get_type().to_string())
}

/// `file:line` of a kernel's definition, empty when it has none.
pub(crate) fn origin_of(kernel: &Bound<'_, PyAny>) -> String {
    kernel.getattr("__code__").map_or_else(|_| String::new(), |code| origin::of_code(&code))
}
