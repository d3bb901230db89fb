//! A bounded collector of findings.

use crate::Program;
use ahbm_findings::Diagnostic;
use std::collections::BTreeMap;

/// Findings shown in all.
const SHOWN: usize = 50;
/// Findings shown per code, so that one fault repeated by every agent does not hide the others.
const SHOWN_PER_CODE: u64 = 12;

/// Collects findings; past the caps they are counted but not built, which keeps a program where every
/// agent is wrong as cheap to check as one where none is.
#[derive(Debug, Default)]
pub(super) struct Findings {
    shown: Vec<Diagnostic>,
    counts: BTreeMap<&'static str, (u64, u64)>,
}

impl Findings {
    pub(super) fn add(&mut self, code: &'static str, build: impl FnOnce(&'static str) -> Diagnostic) {
        let (seen, hidden) = self.counts.entry(code).or_default();
        *seen += 1;
        if *seen <= SHOWN_PER_CODE && self.shown.len() < SHOWN {
            self.shown.push(build(code));
        } else {
            *hidden += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn finish(mut self, program: &Program) -> Vec<Diagnostic> {
        let hidden: Vec<String> =
            self.counts.iter().filter(|(_, c)| c.1 > 0).map(|(code, c)| format!("{} more {code}", c.1)).collect();
        if !hidden.is_empty() {
            self.shown.push(
                Diagnostic::new("AHBM-L100", format!("findings left out in {}: {}", program.name, hidden.join(", ")))
                    .hint("the findings shown usually share their cause with the rest; fix them and check again"),
            );
        }
        self.shown
    }
}
