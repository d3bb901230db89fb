//! Every error code of Rust and Python: the registry.
//!
//! The first letter is the family. It decides the class of the exception and the exit code
//! (`python/ahbm/errors.py`). `docs/errors.md` is generated from this table by `scripts/errors.py`. To add a code: a row
//! in the file of its family, then `python scripts/errors.py`. Tests refuse a code that is raised and not listed, and
//! one that is listed and not raised.

mod budgets;
mod configuration;
mod data;
mod deadlocks;
mod defects;
mod files;
mod interruptions;
mod kernels;
mod languages;
mod lints;
mod ranks;
mod regressions;
mod topology;
mod unsupported;

/// A family on which decisions rest: a limit was reached.
pub const BUDGET: char = 'B';
/// A family on which decisions rest: it does not exist here.
pub const UNSUPPORTED: char = 'U';

/// Two accesses that nothing orders.
pub const RACE: &str = "AHBM-V403";
/// Another order of the agents gives another result.
pub const ORDER_DEPENDENT: &str = "AHBM-V404";
/// Whether accesses are ordered was not analysed.
pub const ORDER_UNDECIDED: &str = "AHBM-V406";
/// Signals that nobody waits for.
pub const UNAWAITED: &str = "AHBM-V410";
/// Contributions and the run with numbers disagree.
pub const CHECKS_DISAGREE: &str = "AHBM-V408";

/// A code and what there is to say about it. All but the code are parts of a sentence, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// `AHBM-`, the letter of the family, three digits.
    pub code: &'static str,
    /// What is wrong.
    pub meaning: &'static str,
    /// What leads to it, for example.
    pub example: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// A row of the registry.
const fn row(code: &'static str, meaning: &'static str, example: &'static str, remedy: &'static str) -> Code {
    Code { code, meaning, example, remedy }
}

/// The families by letter, each by code.
const FAMILIES: [&[Code]; 14] = [
    languages::CODES,
    budgets::CODES,
    configuration::CODES,
    deadlocks::CODES,
    files::CODES,
    interruptions::CODES,
    kernels::CODES,
    lints::CODES,
    regressions::CODES,
    topology::CODES,
    unsupported::CODES,
    data::CODES,
    ranks::CODES,
    defects::CODES,
];

/// Every code, by code.
pub fn all() -> impl Iterator<Item = &'static Code> {
    FAMILIES.into_iter().flatten()
}

/// The row of a code; nothing for one that is not registered.
pub fn find(code: &str) -> Option<&'static Code> {
    let rows = FAMILIES.into_iter().find(|rows| family(rows[0].code) == family(code))?;
    rows.binary_search_by_key(&code, |row| row.code).ok().map(|at| &rows[at])
}

/// The letter of a code: `U` of `AHBM-U203`.
pub fn family(code: &str) -> char {
    code.strip_prefix("AHBM-").and_then(|rest| rest.chars().next()).unwrap_or('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique_and_well_formed() {
        assert!(all().zip(all().skip(1)).all(|(one, next)| one.code < next.code));
        for rows in FAMILIES {
            assert!(rows.iter().all(|row| family(row.code) == family(rows[0].code)));
        }
        for row in all() {
            let number = row.code.strip_prefix("AHBM-").unwrap();
            assert!(number.len() == 4 && family(row.code).is_ascii_uppercase() && number[1..].parse::<u16>().is_ok());
        }
    }

    #[test]
    fn every_code_has_a_meaning_an_example_and_a_remedy() {
        for Code { code, meaning, example, remedy } in all() {
            for part in [meaning, example, remedy] {
                assert!(!part.is_empty() && !part.contains(['\n', '|']) && !part.ends_with('.'), "{code}");
                assert_eq!(part.matches('`').count() % 2, 0, "{code}");
            }
        }
    }

    #[test]
    fn a_code_that_nobody_registered_is_not_found() {
        let meaning = |code| find(code).map(|row| row.meaning);
        assert_eq!(meaning(RACE), Some("two accesses to an element that nothing orders, one of them a write"));
        assert_eq!((find("AHBM-V999"), find(""), family("nonsense")), (None, None, 'Z'));
        assert!(all().all(|row| find(row.code) == Some(row)));
    }
}
