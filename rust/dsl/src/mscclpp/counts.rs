//! As many waits as signals, between each two ranks and through each kind of channel.

use super::record::Recorder;
use crate::{Fault, Raised};
use ahbm_formats::mscclpp::schema::Kind;
use ahbm_machine::Diagnostic;
use ahbm_program::{OriginId, Origins};

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

/// The first of the statements, each once with how often it was executed.
fn named(mut finding: Diagnostic, label: &str, places: &[u32], origins: &Origins) -> Diagnostic {
    let mut counted: Vec<(u32, usize)> = Vec::new();
    for &place in places {
        match counted.iter_mut().find(|(known, _)| *known == place) {
            Some((_, times)) => *times += 1,
            None => counted.push((place, 1)),
        }
    }
    if counted.is_empty() {
        return finding.site(format!("{label}: never"), "");
    }
    for &(place, times) in counted.iter().take(NAMED) {
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        finding = finding.site(format!("{label}{times}"), origins.text(OriginId(place)));
    }
    finding
}
