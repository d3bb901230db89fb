//! What is to be said of a program beside its plan.

use ahbm_findings::Diagnostic;
use ahbm_program::{Origin, OriginId, Origins};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Each once.
pub(super) struct Notes<'o> {
    origins: &'o Origins,
    /// By line and difference, the first statement.
    differences: IndexMap<(Option<Origin>, String), u32, FxBuildHasher>,
    shared: Option<(&'static str, String, [u32; 2])>,
}

impl<'o> Notes<'o> {
    pub(super) fn new(origins: &'o Origins) -> Self {
        Self { origins, differences: IndexMap::default(), shared: None }
    }

    /// The language's own compiler does something else at a statement.
    pub(super) fn differs(&mut self, place: u32, what: &str) {
        let line = self.origins.get(OriginId(place)).map(Origin::line);
        self.differences.entry((line, format!("MSCCL++'s own compiler {what}"))).or_insert(place);
    }

    /// Instances share elements of two statements, or would.
    pub(super) fn shares(&mut self, code: &'static str, message: String, places: [u32; 2]) {
        self.shared = Some((code, message, places));
    }

    pub(super) fn finish(self) -> Vec<Diagnostic> {
        let told = |finding: Diagnostic, place| finding.site("statement", self.origins.text(OriginId(place)));
        let difference = |((_, what), place): ((_, String), u32)| told(Diagnostic::new("AHBM-A121", what), place);
        let shared = |(code, message, places): (&'static str, String, [u32; 2])| {
            places.into_iter().fold(Diagnostic::new(code, message), told)
        };
        let differences = self.differences.into_iter().map(difference);
        differences.chain(self.shared.into_iter().map(shared)).collect()
    }
}
