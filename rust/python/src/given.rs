//! Arguments of public classes: a wrong one is a typed error, as everywhere in `ahbm`.
//!
//! A method takes `Given<T>` where it would take `T`, and begins with [`given!`], which knows the names.

use crate::errors;
use ahbm_findings::Diagnostic;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::num::NonZero;
use std::path::PathBuf;

/// Characters of a refused value that the error shows.
const SHOWN: usize = 60;

/// An argument; if it is no `T`, the value in words.
pub(crate) struct Given<T>(Result<T, String>);

impl<T> Given<T> {
    /// A default.
    pub(crate) const fn ok(value: T) -> Self {
        Self(Ok(value))
    }
}

impl<T: Wanted> Given<T> {
    /// The value. Raises `AHBM-C129`, which names the argument.
    pub(crate) fn named(self, name: &str) -> PyResult<T> {
        self.0.map_err(|shown| {
            let text = format!("{name} must be {}, not {shown}", T::words());
            Python::attach(|py| errors::raise_one(py, Diagnostic::new("AHBM-C129", text)))
        })
    }
}

/// Puts the values in the place of the arguments of these names; leaves the function for one that is wrong.
macro_rules! given {
    ($($name:ident),+) => {
        $(let $name = $name.named(stringify!($name))?;)+
    };
}
pub(crate) use given;

/// Raises `AHBM-C129` unless there is a `number` among as many as `count`.
pub(crate) fn within(name: &str, number: usize, count: usize) -> PyResult<()> {
    if number < count {
        return Ok(());
    }
    let text = format!("{name} must be an integer from 0 to {}, not {number}", count.saturating_sub(1));
    Err(Python::attach(|py| errors::raise_one(py, Diagnostic::new("AHBM-C129", text))))
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Given<T> {
    type Error = PyErr;
    const INPUT_TYPE: pyo3::inspect::PyStaticExpr = T::INPUT_TYPE;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(value.extract().map_err(|_| shown(value))))
    }
}

#[cold]
fn shown(value: Borrowed<'_, '_, PyAny>) -> String {
    match value.repr().and_then(|text| text.extract::<String>()) {
        Ok(text) if text.chars().count() > SHOWN => text.chars().take(SHOWN).chain("...".chars()).collect(),
        Ok(text) => text,
        Err(_) => "an object that cannot be shown".to_owned(),
    }
}

/// The words for a type of arguments; a class says its own beside itself, by [`wanted!`].
pub(crate) trait Wanted {
    fn words() -> String;
}

macro_rules! wanted {
    ($($kind:ty: $words:expr),+ $(,)?) => {
        $(impl Wanted for $kind {
            fn words() -> String {
                $words.to_owned()
            }
        })+
    };
}
pub(crate) use wanted;

wanted! {
    bool: "True or False",
    f64: "a number",
    i64: "an integer of 64 bits",
    u32: "an integer from 0 to 4294967295",
    u64: "an integer from 0 to 18446744073709551615",
    NonZero<u32>: "an integer from 1 to 4294967295",
    NonZero<u64>: "an integer from 1 to 18446744073709551615",
    usize: "an integer from 0 to 18446744073709551615",
    String: "a text",
    &str: "a text",
    PathBuf: "a path",
    Bound<'_, PyUntypedArray>: "an array",
    Bound<'_, PyAny>: "an object",
}

impl<T: Wanted> Wanted for Option<T> {
    fn words() -> String {
        format!("{} or None", T::words())
    }
}

impl<T: Wanted> Wanted for Vec<T> {
    fn words() -> String {
        format!("a list, each item {}", T::words())
    }
}

impl<T: Wanted> Wanted for HashMap<String, T> {
    fn words() -> String {
        format!("a mapping of texts, each to {}", T::words())
    }
}

macro_rules! tuples {
    ($($($kind:ident)+;)+) => {
        $(impl<$($kind: Wanted),+> Wanted for ($($kind,)+) {
            fn words() -> String {
                format!("({})", [$($kind::words()),+].join(", "))
            }
        })+
    };
}
tuples! { A B; A B C; A B C D E; A B C D E F G; A B C D E F G H I J; }
