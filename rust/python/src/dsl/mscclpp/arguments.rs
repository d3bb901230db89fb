//! What authors pass to statements.

use super::{Program, faulty};
use ahbm_dsl::mscclpp::{Meet, Workers};
use ahbm_dsl::{Fault, Raised};
use ahbm_formats::mscclpp::schema::ReduceOp;
use ahbm_plan::Space;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use super::local::ThreadBlockGroup;

/// An argument that is not what it must be.
const ARGUMENT: &str = "AHBM-A103";
/// Characters of a refused value that an error shows.
const SHOWN: usize = 60;

pub(super) fn wrong(raised: Raised, message: impl Into<String>) -> Fault {
    Fault::new(raised, ARGUMENT, message)
}

/// The exception for an argument of a wrong type.
pub(super) fn unusable(value: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let shown = value.repr().and_then(|text| text.extract::<String>()).unwrap_or_else(|_| "that".to_owned());
    let shown: String = shown.chars().take(SHOWN).collect();
    let mut fault = wrong(Raised::Type, format!("{wanted} is needed here, not {shown}"));
    if value.is_instance_of::<pyo3::types::PyFloat>() {
        fault = fault.hint("a / b is a float even where it has no fraction; a // b is an integer");
    }
    faulty(value.py(), fault)
}

/// An integer; a float is none, whatever its value.
#[derive(Clone, Copy)]
pub(super) struct Int(pub(super) i128);

impl Int {
    /// Numbers that do not fit are out of every range.
    pub(super) fn small(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Int {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(small) = value.extract::<i64>() {
            return Ok(Self(i128::from(small)));
        }
        value.extract::<u64>().map(|large| Self(i128::from(large))).map_err(|_| unusable(&value, "an integer"))
    }
}

/// The members of the package's enumerations.
struct Enums {
    sync: [Py<PyAny>; 4],
    space: [Py<PyAny>; 3],
    function: [Py<PyAny>; 3],
}

static ENUMS: PyOnceLock<Enums> = PyOnceLock::new();

fn enums(py: Python<'_>) -> PyResult<&Enums> {
    ENUMS.get_or_try_init(py, || {
        let types = py.import("ahbm.dsl.mscclpp.internal.types")?;
        let member =
            |class: &str, name: &str| -> PyResult<Py<PyAny>> { Ok(types.getattr(class)?.getattr(name)?.unbind()) };
        let sync = |name| member("SyncType", name);
        let space = |name| member("BufferType", name);
        let function = |name| member("ReduceOperationType", name);
        Ok(Enums {
            sync: [sync("none")?, sync("before")?, sync("after")?, sync("both")?],
            space: [space("input")?, space("output")?, space("scratch")?],
            function: [function("sum")?, function("min")?, function("max")?],
        })
    })
}

/// The member with the identity of `value`, or the name that it says.
fn member(value: &Bound<'_, PyAny>, members: &[Py<PyAny>], names: &[&str]) -> Option<usize> {
    let same = members.iter().position(|member| member.as_ptr() == value.as_ptr());
    same.or_else(|| {
        let said = value.cast::<PyString>().ok()?.extract::<String>().ok()?;
        names.iter().position(|name| *name == said)
    })
}

/// A `SyncType`.
#[derive(Clone, Copy)]
pub(super) struct Sync(pub(super) Meet);

impl Sync {
    pub(super) const BOTH: Self = Self(Meet { before: true, after: true });
}

impl<'a, 'py> FromPyObject<'a, 'py> for Sync {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let found = member(&value, &enums(value.py())?.sync, &["none", "before", "after", "both"]);
        let found = found.ok_or_else(|| unusable(&value, "a SyncType"))?;
        Ok(Self(Meet { before: found & 1 > 0, after: found & 2 > 0 }))
    }
}

/// A `ReduceOperationType`.
#[derive(Clone, Copy)]
pub(super) struct Function(pub(super) ReduceOp);

impl Function {
    pub(super) const SUM: Self = Self(ReduceOp::Sum);
}

impl<'a, 'py> FromPyObject<'a, 'py> for Function {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let found = member(&value, &enums(value.py())?.function, &["sum", "min", "max"]);
        let found = found.ok_or_else(|| unusable(&value, "a ReduceOperationType"))?;
        Ok(Self([ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max][found]))
    }
}

/// A `BufferType`.
#[derive(Clone, Copy)]
pub(super) struct BufferType(pub(super) Space);

const SPACES: [Space; 3] = [Space::Input, Space::Output, Space::Scratch];

impl<'a, 'py> FromPyObject<'a, 'py> for BufferType {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let found = member(&value, &enums(value.py())?.space, &["input", "output", "scratch"]);
        Ok(Self(SPACES[found.ok_or_else(|| unusable(&value, "a BufferType"))?]))
    }
}

/// The `BufferType` of a space.
pub(super) fn buffer_type(py: Python<'_>, space: Space) -> PyResult<Py<PyAny>> {
    Ok(enums(py)?.space[space as usize].clone_ref(py))
}

/// The thread blocks that a statement names: `tb` before `tb_group`.
pub(super) fn workers<'a>(tb: Option<Int>, group: Option<&'a Bound<'_, ThreadBlockGroup>>) -> Workers<'a> {
    match (tb, group) {
        (Some(tb), _) => Workers::Block(tb.small()),
        (None, Some(group)) => Workers::Group(&group.get().blocks),
        (None, None) => Workers::Unsaid,
    }
}

/// Keywords of older versions of the language.
#[derive(Default)]
pub(super) struct Older {
    pub(super) sync: Option<Sync>,
    pub(super) function: Option<Function>,
    pub(super) from_packet: bool,
    pub(super) to_packet: bool,
}

impl Older {
    /// Reads the keywords that a statement does not know. Raises `ProgramError` (AHBM-A103, a `TypeError`) for one
    /// that no version knows.
    pub(super) fn of(
        program: &Program,
        statement: &str,
        known: &[&str],
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut older = Self::default();
        for (key, value) in given.into_iter().flat_map(|given| given.iter()) {
            let key: String = key.extract()?;
            let said = if key == "iter_context" || known.contains(&&*key) { &*key } else { "" };
            let now = match said {
                "iter_context" => "a loop repeats everything inside of it, without the argument",
                "sync" => {
                    older.sync = Some(value.extract()?);
                    "data_sync=SyncType.…"
                }
                "op" => {
                    older.function = Some(value.extract()?);
                    "reduce_op=ReduceOperationType.…"
                }
                "from_packet" => {
                    older.from_packet = value.is_truthy()?;
                    "read_put_packets and unpack_packets take packets"
                }
                "to_packet" => {
                    older.to_packet = value.is_truthy()?;
                    "copy_packets makes packets"
                }
                _ => {
                    let message = format!("{statement}() got an unexpected keyword argument '{key}'");
                    return Err(faulty(value.py(), wrong(Raised::Type, message)));
                }
            };
            program.note(value.py(), &format!("{key}="), now)?;
        }
        Ok(older)
    }
}
