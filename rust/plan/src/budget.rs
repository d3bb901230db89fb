//! Budgets: what a file may ask for before anything is allocated for it.

use ahbm_findings::Diagnostic;

/// A quantity that a reader bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of a file.
    FileBytes,
    /// Bytes of a file once inflated.
    InflatedBytes,
    /// Inflated bytes per compressed byte.
    InflationRatio,
    /// Nodes of a document or graph, steps of a plan.
    Steps,
    /// Dependencies, over all steps.
    Deps,
    /// Ranks.
    Ranks,
    /// Bytes of one string.
    StringBytes,
    /// Depth of nested elements.
    Nesting,
    /// Attributes of one element.
    Attributes,
    /// Operations of the program that a plan lowers to.
    Ops,
    /// Elements of all buffers that a check follows.
    Cells,
    /// Operations and elements that a check handles, over all orders; the check itself says `AHBM-B210`.
    CheckSteps,
}

impl Limit {
    /// Every limit, in the order of [`Budget`].
    pub const ALL: [Limit; 12] = [
        Self::FileBytes,
        Self::InflatedBytes,
        Self::InflationRatio,
        Self::Steps,
        Self::Deps,
        Self::Ranks,
        Self::StringBytes,
        Self::Nesting,
        Self::Attributes,
        Self::Ops,
        Self::Cells,
        Self::CheckSteps,
    ];

    /// The name that `--limit NAME=N` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileBytes => "file_bytes",
            Self::InflatedBytes => "inflated_bytes",
            Self::InflationRatio => "inflation_ratio",
            Self::Steps => "steps",
            Self::Deps => "deps",
            Self::Ranks => "ranks",
            Self::StringBytes => "string_bytes",
            Self::Nesting => "nesting",
            Self::Attributes => "attributes",
            Self::Ops => "ops",
            Self::Cells => "cells",
            Self::CheckSteps => "check_steps",
        }
    }

    const fn code(self) -> &'static str {
        match self {
            Self::FileBytes => "AHBM-B201",
            Self::InflatedBytes => "AHBM-B202",
            Self::InflationRatio => "AHBM-B203",
            Self::Steps => "AHBM-B204",
            Self::Deps => "AHBM-B205",
            Self::Ranks => "AHBM-B206",
            Self::StringBytes => "AHBM-B207",
            Self::Nesting => "AHBM-B208",
            Self::Attributes => "AHBM-B212",
            Self::Ops => "AHBM-B209",
            Self::Cells => "AHBM-B211",
            Self::CheckSteps => "AHBM-B210",
        }
    }
}

/// The limits of one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget([u64; Limit::ALL.len()]);

impl Default for Budget {
    fn default() -> Self {
        Self([1 << 28, 1 << 30, 1000, 1 << 23, 1 << 24, 1 << 16, 4096, 64, 64, 1 << 25, 1 << 20, 1 << 28])
    }
}

impl Budget {
    /// The value of a limit.
    pub const fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    /// Sets a limit.
    #[must_use]
    pub const fn with(mut self, limit: Limit, value: u64) -> Self {
        self.0[limit as usize] = value;
        self
    }

    /// Accepts `asked` or names the limit it is over.
    ///
    /// # Errors
    /// `AHBM-B201` to `AHBM-B212`, one per limit.
    pub fn check(&self, limit: Limit, asked: u64) -> Result<(), Diagnostic> {
        if asked <= self.get(limit) {
            return Ok(());
        }
        let (name, most) = (limit.name(), self.get(limit));
        Err(Diagnostic::new(limit.code(), format!("{asked} {name} are asked for, the limit is {most}"))
            .hint(format!("--limit {name}={asked} raises it")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_limit_names_the_option_that_raises_it() {
        let budget = Budget::default().with(Limit::Ranks, 4);
        assert!(budget.check(Limit::Ranks, 4).is_ok());
        let error = budget.check(Limit::Ranks, 5).unwrap_err();
        assert_eq!((error.code, error.hint.as_deref()), ("AHBM-B206", Some("--limit ranks=5 raises it")));
    }
}
