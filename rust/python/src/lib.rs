//! The extension module `ahbm._core`: the one place where Python and the crates meet.
//!
//! - [`errors`]: findings become exceptions of `ahbm.errors`; panics become typed errors too. [`logs`]: what the crates
//!   log goes to `logging`.
//! - [`machine`], [`program`], [`timeline`], [`memory`], [`recipe`]: thin classes over the crates of the same names.
//!   [`inspection`]: where a run's data came from and went. [`features`]: what selectors learn from; [`selection`]: how
//!   they choose.
//! - [`synthesis`]: schedules computed from a machine. [`job`]: many programs that share one.
//! - [`gate`]: where the threads of ranks wait for one another. [`neighbour`]: the memory of ranks that are processes.
//!   [`interrupt`]: Ctrl-C while native code runs.
//! - [`astra`]: set-ups of another simulator, and its numbers.
//! - [`builder`]: writes a program, and [`draft`] has what is written; [`kernel`] runs a kernel once per body to record
//!   it; [`network`] knows the SIP networks by name.
//! - [`formats`]: plans of other projects, read and converted; [`plan`]: checked and lowered. [`check`]: captured
//!   programs, checked.
//! - [`dsl`]: recorders for programs of other languages.
//! - [`tl`], [`handle`]: what a kernel sees. [`capture`] is the recording behind them, [`operand`] the
//!   checks on their arguments ([`given`]: those of the other classes), [`origin`] finds the kernel's line behind a call.
//!   [`symbolic`] integers and [`peer`]s keep the formulas by which one call stands for many, and [`classes`] makes the
//!   bodies of a whole launch of them.
//!
//! [`ahbm_findings::codes`] lists the codes of its findings.
//!
//! Laws. No lock is held while Python code can run. Long runs release the interpreter lock. A value's slot
//! is given back exactly when its last handle dies, so that equal kernels record equal bodies.

mod astra;
mod builder;
mod capture;
mod check;
mod classes;
mod collectives;
mod costs;
mod draft;
mod dsl;
mod errors;
mod features;
mod formats;
mod gate;
mod given;
mod handle;
mod inspection;
mod interrupt;
mod job;
mod kernel;
mod limit;
mod logs;
mod machine;
mod memory;
mod neighbour;
mod network;
mod operand;
mod origin;
mod peer;
mod plan;
mod plan_builder;
mod profile;
mod program;
mod recipe;
mod recording;
mod replayed;
mod selection;
mod sources;
mod steps;
mod symbolic;
mod synthesis;
mod timeline;
mod tl;
mod workload;

use pyo3::prelude::*;

/// Machines, programs and the recording context of kernels.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::astra::{AstraRun, AstraSetup};
    #[pymodule_export]
    use super::builder::ProgramBuilder;
    #[pymodule_export]
    use super::collectives::{collectives, expected, held};
    #[pymodule_export]
    use super::costs::Protocol;
    #[pymodule_export]
    use super::dsl::msccl::{MscclRecorder, Ref, chunk};
    #[pymodule_export]
    use super::dsl::mscclpp::{Program as MscclppProgram, mscclpp_statement};
    #[pymodule_export]
    use super::errors::codes;
    #[pymodule_export]
    use super::features::{AlgorithmFeatures, CallFeatures, JobFeatures, MachineFeatures};
    #[pymodule_export]
    use super::formats::{
        PyDocument, convert_plan, is_pytorch_trace, plan_files, plan_formats, plan_limits, pytorch_traces, read_plan,
        unpacked,
    };
    #[pymodule_export]
    use super::gate::{Gate, Gates};
    #[pymodule_export]
    use super::handle::{Handle, MemoryRef, RecvFuture};
    #[pymodule_export]
    use super::interrupt::Watch;
    #[pymodule_export]
    use super::job::{Job, JobCall, JobTimes};
    #[pymodule_export]
    use super::limit::Limit;
    #[pymodule_export]
    use super::machine::{Compute, Machine, Roofline};
    #[pymodule_export]
    use super::memory::{Flow, Memory};
    #[pymodule_export]
    use super::neighbour::Neighbour;
    #[pymodule_export]
    use super::peer::Peer;
    #[pymodule_export]
    use super::plan_builder::PlanBuilder;
    #[pymodule_export]
    use super::profile::{Profile, kernels_of, read_profile};
    #[pymodule_export]
    use super::program::Program;
    #[pymodule_export]
    use super::recipe::Recipe;
    #[pymodule_export]
    use super::recording::write_recording;
    #[pymodule_export]
    use super::replayed::Replayed;
    #[pymodule_export]
    use super::selection::{DecisionTree, RuleTable};
    #[pymodule_export]
    use super::sources::sources;
    #[pymodule_export]
    use super::synthesis::Schedule;
    #[pymodule_export]
    use super::timeline::{Timeline, categories, check_timeline_name, write_job_timeline};
    #[pymodule_export]
    use super::tl::Tl;
    #[pymodule_export]
    use super::workload::{Workload, trace_sort};
}
