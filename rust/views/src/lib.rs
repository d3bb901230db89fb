//! Runs as files to look at: timelines for Perfetto and Chrome, post-execution traces; programs and jobs as columns.
//!
//! A view is computed from a program or a job, a machine and a timeline. It knows no source: nothing here reads a plan.
//!
//! ```
//! use ahbm_emulator::{Options, simulate};
//! use ahbm_machine::Machine;
//! use ahbm_plan::blocks::{Action, Slot};
//! use ahbm_plan::{Budget, Collective, LowerOptions, PlanBuilder, Space, StepSpec};
//! use ahbm_program::{Dtype, Locus, Origin};
//! use ahbm_views::{timeline_file::Format, tracks::Tracks};
//!
//! let at = |line| Origin { file: "pair.py".into(), locus: Locus::Line(line) };
//! let mut plan = PlanBuilder::new("pair", Collective::Broadcast.into(), 2, 1, Budget::default(), at(1))?;
//! let blocks = [plan.block(0, Some(1), None, 0, at(2))?, plan.block(1, None, Some(0), 0, at(3))?];
//! let ends = [(Action::Send, Space::Input), (Action::Recv, Space::Output)];
//! for (block, (action, space)) in blocks.into_iter().zip(ends) {
//!     let chunk = Slot { space, chunk: 0 };
//!     plan.step(block, &StepSpec::new(action, chunk, chunk), at(4))?;
//! }
//! let machine = Machine::from_yaml("", "default", &[]).expect("a machine");
//! let plan = plan.finish().expect("a plan");
//! let program = plan.lower(&machine, &LowerOptions::new(4096, Dtype::F16)).expect("a program").program;
//! let timeline = simulate(&program, &machine, &Options { detail: 1 << 20, ..Options::default() })?;
//!
//! let tracks = Tracks::of(&program, &machine, &timeline)?;
//! let json = String::from_utf8(Format::Chrome.render(&tracks)).expect("text");
//! assert!(json.contains("pair.py:4"));
//! # Ok::<(), ahbm_findings::Diagnostic>(())
//! ```
//!
//! Reading order: [`tracks`] (a run as rows of slices), [`perfetto`] and [`chrome`] (the same as bytes),
//! [`timeline_file`] (which of them a name asks for), [`mod@executed`] (a run as a Chakra trace), [`features`]
//! (what selectors learn from), [`credit`] (whose the time of a run is).

pub mod chrome;
pub mod credit;
pub mod executed;
pub mod features;
pub mod perfetto;
pub mod timeline_file;
pub mod tracks;

pub use executed::executed;
