//! ASTRA-sim's numbers: its files, read, and its analytical back-ends, reproduced to the nanosecond.
//!
//! The rules are those of the public simulator (astra-sim 518bd51 with its analytical networks): a bandwidth of 1 GB/s
//! is 2^30 bytes per second, every delay is cut to whole nanoseconds, a computation takes at least one. A rank has one
//! computation, one communication and one host operation at a time and begins ready nodes by ascending id; messages
//! leave at once; a link carries whole messages in the order of their arrival. None of this is shared with the machines
//! of `ahbm_machine`, and none of it should be: it is what another simulator says.
//!
//! ```
//! use ahbm_astra::{Backend, Files, Flags, Options, Setup};
//! # let folder = std::env::temp_dir().join(format!("ahbm-astra-tour-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes);
//! # write("network.yml", b"topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n")?;
//! # write("system.json", b"{}")?;
//! # write("memory.json", br#"{"memory-type": "NO_MEMORY_EXPANSION"}"#)?;
//! # // Metadata, and node 1: a computation of 3 us.
//! # (0..2).try_for_each(|rank| write(&format!("job.{rank}.et"), b"\x07\x0a\x050.0.4\x06\x08\x01\x18\x04\x38\x03"))?;
//! let files = Files {
//!     workload: folder.join("job"),
//!     system: folder.join("system.json"),
//!     network: folder.join("network.yml"),
//!     memory: folder.join("memory.json"),
//!     groups: None,
//! };
//! let setup = Setup::read(&files, &Default::default()).expect("a set-up");
//! assert!(setup.findings().is_empty());
//! let flags = Flags { backend: Backend::CongestionAware, ..Flags::default() };
//! let report = setup.run(flags, &Options::default()).expect("it runs");
//! assert_eq!((report.ranks[1].cycles, report.ranks[1].exposed), (Some(3000), Some(0)));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Setup::read`] reads the files; [`Setup::findings`] says what is wrong before a run; [`Setup::run`] runs.
//!
//! Reading order: [`config`], then `engine/rank.rs` (nodes), `engine/call.rs` (collectives into streams),
//! `engine/stream.rs` (queues), `engine/exchange.rs` and `engine/tree.rs` (algorithms), `engine/network.rs`.

pub mod config;
mod engine;
mod preflight;
mod report;

pub use config::{Backend, Files, Flags, Setup};
pub use report::{CallKind, LinkTraffic, RankTimes, Report, Traffic};

use ahbm_findings::Diagnostic;

/// What a run may take, and what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most events.
    pub max_events: u64,
    /// Keeps start and end of every node.
    pub times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_events: 5_000_000_000, times: false }
    }
}

impl Setup {
    /// What is wrong with the set-up, before it runs: what the job itself has wrong, what stops ASTRA-sim, what never
    /// ends there.
    ///
    /// `AHBM-F149` collectives that ranks lack or disagree on, `AHBM-F137` and `AHBM-F138` messages that do not fit,
    /// `AHBM-D102` groups that are entered in crossing orders, `AHBM-D103` what never ends there, `AHBM-U235` what
    /// ASTRA-sim stops at, `AHBM-C190` keys that are missing.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let mut findings = preflight::findings(self);
        findings.retain(|finding| finding.code != preflight::TOLD);
        match (self.job.calls(), self.job.messages()) {
            (Ok(calls), Ok(messages)) => {
                findings.extend(self.job.crossings(&calls, &messages).err().into_iter().flatten())
            }
            (calls, messages) => {
                findings.extend(calls.err().into_iter().flatten());
                // What is sent and not received ends there; the run itself says it.
                findings.extend(messages.err().filter(|_| !preflight::all_received(&self.job)).into_iter().flatten());
            }
        }
        findings
    }

    /// Runs.
    ///
    /// # Errors
    /// `AHBM-B120` more events than allowed, `AHBM-B213` more links or queues than allowed, `AHBM-U235` what stops
    /// ASTRA-sim.
    pub fn run(&self, flags: Flags, options: &Options) -> Result<Report, Diagnostic> {
        let mut report = engine::Simulation::new(self, flags, options)?.run(options)?;
        report.findings.extend(preflight::findings(self).into_iter().filter(|finding| finding.code == preflight::TOLD));
        Ok(report)
    }
}
