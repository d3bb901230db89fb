//! What can be wrong, and how it is said: the ground of every other crate that finds something.
//!
//! Pure: nothing here knows a file, a machine or a program. The crate promises:
//!
//! 1. A [`Diagnostic`] has a stable code, one sentence, every side that took part with its place, and a remedy.
//! 2. A code stands in one row of [`codes`], with its meaning, an example of what leads to it and what to do about it.
//!    It keeps its meaning; a number that was given up is not used again.
//!
//! ```
//! use ahbm_findings::{Diagnostic, codes, suggestion};
//!
//! let known = ["ring_1d", "torus_2d"];
//! let finding = Diagnostic::new("AHBM-T006", "unknown topology `ring`")
//!     .site("topology", "ring.yaml:3")
//!     .hint(suggestion("ring", &known));
//! assert_eq!(finding.to_string(), "AHBM-T006 unknown topology `ring`\n  topology  [ring.yaml:3]\n  hint: did you mean `ring_1d`?");
//!
//! let row = codes::find(finding.code).expect("a registered code");
//! assert!(finding.family() == 'T' && !row.remedy.is_empty());
//! ```
//!
//! Reading order: `diagnostic`, [`codes`] and its families, `suggestion`.

pub mod codes;
mod diagnostic;
mod suggestion;

pub use diagnostic::{Diagnostic, Site};
pub use suggestion::suggestion;
