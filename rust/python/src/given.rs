//! Arguments of public classes: a wrong one is a typed error, as everywhere in `ahbm`.

use crate::errors;
use ahbm_machine::Diagnostic;
use pyo3::prelude::*;

/// Characters of a refused value that the error shows.
const SHOWN: usize = 60;

/// An argument that is refused with `AHBM-C129` instead of a TypeError.
pub(crate) struct Given<T>(pub(crate) T);

/// The words for a type of arguments.
pub(crate) trait Wanted {
    const WORDS: &'static str;
}

impl Wanted for String {
    const WORDS: &'static str = "a text";
}

impl Wanted for u32 {
    const WORDS: &'static str = "an integer from 0 to 4294967295";
}

impl Wanted for Vec<(String, String)> {
    const WORDS: &'static str = "pairs of texts";
}

impl<'a, 'py, T: FromPyObject<'a, 'py> + Wanted> FromPyObject<'a, 'py> for Given<T> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(Self).map_err(|_| {
            let shown = value.repr().and_then(|text| text.extract::<String>()).unwrap_or_else(|_| "that".to_owned());
            let shown: String = shown.chars().take(SHOWN).collect();
            let text = format!("the argument must be {}, not {shown}", T::WORDS);
            errors::raise_one(value.py(), Diagnostic::new("AHBM-C129", text))
        })
    }
}
