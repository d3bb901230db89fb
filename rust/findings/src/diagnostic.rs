//! One shape for everything that can go wrong: a stable code, both sides with their origins, a hint.

use crate::codes;
use std::fmt;

/// A typed finding. `code` is stable across releases and is what scripts and tests match on; [`codes`]
/// lists them all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostic {
    /// Stable code, e.g. `AHBM-D101`.
    pub code: &'static str,
    /// The finding, in one sentence.
    pub message: String,
    /// Every side that took part, in a fixed order.
    pub sites: Vec<Site>,
    /// A remedy.
    pub hint: Option<String>,
}

/// One side of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Who and what, e.g. `sip 0 cube 3 pe 0 waits recv(dir="W")`.
    pub label: String,
    /// The place in the source, e.g. `ring.py:41`; empty when the side has no source text.
    pub origin: String,
}

impl Diagnostic {
    /// A finding without sites or hint. Debug builds refuse a code that [`codes`] does not list.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(codes::find(code).is_some(), "{code} is not registered");
        Self { code, message: message.into(), sites: Vec::new(), hint: None }
    }

    /// The letter of the code, which decides the class of the exception and the exit code.
    pub fn family(&self) -> char {
        codes::family(self.code)
    }

    /// Adds one side.
    #[must_use]
    pub fn site(mut self, label: impl Into<String>, origin: impl Into<String>) -> Self {
        self.sites.push(Site { label: label.into(), origin: origin.into() });
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)?;
        for site in &self.sites {
            write!(f, "\n  {}", site.label)?;
            if !site.origin.is_empty() {
                write!(f, "  [{}]", site.origin)?;
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
