//! As many waits as signals, between each two ranks and through each kind of channel.

use super::record::Recorder;
use crate::{Fault, Raised};
use ahbm_findings::Diagnostic;
use ahbm_formats::mscclpp::schema::Kind;
use ahbm_program::{Origin, OriginId, Origins};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Statements that a finding names per side.
const NAMED: usize = 4;
/// Pairs of ranks that an error names.
const PAIRS: usize = 8;

impl Recorder {
    /// Whether every signal has a wait. A loop counts once, packets do not count.
    ///
    /// # Errors
    /// `AHBM-A104` (`RuntimeError`) with the statements of both ranks.
    pub fn count_signals(&self, origins: &Origins) -> Result<(), Fault> {
        let awaited = self.waits.keys().map(|&(rank, peer, kind)| (peer, rank, kind));
        let mut pairs: Vec<(u32, u32, Kind)> = self.signals.keys().copied().chain(awaited).collect();
        pairs.sort_unstable_by_key(|&(from, to, kind)| (from, to, kind as u8));
        pairs.dedup();
        let mut findings = Vec::new();
        for (from, to, kind) in pairs {
            let signals = self.signals.get(&(from, to, kind)).map_or(&[][..], Vec::as_slice);
            let waits = self.waits.get(&(to, from, kind)).map_or(&[][..], Vec::as_slice);
            if signals.len() == waits.len() {
                continue;
            }
            let way = if kind == Kind::Port { "port" } else { "memory" };
            let message = format!(
                "rank {from} signals rank {to} {} times through {way} channels, and rank {to} waits {} times",
                signals.len(),
                waits.len()
            );
            let mut finding = Diagnostic::new("AHBM-A104", message);
            for (label, places) in [
                (format!("rank {from} signals rank {to}"), signals),
                (format!("rank {to} waits for rank {from}"), waits),
            ] {
                finding = named(finding, &label, places, origins);
            }
            findings.push(finding);
            if findings.len() == PAIRS {
                break;
            }
        }
        if findings.is_empty() { Ok(()) } else { Err(Fault { raised: Raised::Runtime, findings }) }
    }
}

/// The first of the lines, each with how often it was executed, or the values of its variables.
fn named(mut finding: Diagnostic, label: &str, places: &[u32], origins: &Origins) -> Diagnostic {
    let mut counted: IndexMap<Origin, (&Origin, usize), FxBuildHasher> = IndexMap::default();
    for origin in places.iter().filter_map(|&place| origins.get(OriginId(place))) {
        counted.entry(origin.line()).or_insert((origin, 0)).1 += 1;
    }
    if counted.is_empty() {
        return finding.site(format!("{label}: never"), "");
    }
    for (line, &(once, times)) in counted.iter().take(NAMED) {
        finding = match times {
            1 => finding.site(label, once.to_string()),
            _ => finding.site(format!("{label} ({times} times)"), line.to_string()),
        };
    }
    finding
}
