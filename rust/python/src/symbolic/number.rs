//! The integer that Python code sees.

use super::{Operand, Path};
use ahbm_program::Term;
use ahbm_program::formula::{Axis, Function};
use pyo3::basic::CompareOp;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple, PyType};
use std::sync::Arc;

/// An integer of a kernel call with the formula behind it. It says that it is an `int`, and behaves like the one it was
/// in that call wherever its formula cannot be kept.
#[pyclass(frozen, module = "ahbm._core")]
pub(crate) struct SymbolicInt {
    path: Arc<Path>,
    term: Term,
    value: i64,
}

impl SymbolicInt {
    /// A coordinate.
    pub(crate) fn axis(path: &Arc<Path>, axis: Axis, value: i64) -> Self {
        let term = path.formulas(|formulas| formulas.axis(axis));
        Self { path: Arc::clone(path), term, value }
    }

    /// Its value on a path, with its formula if that is its own path.
    pub(crate) fn on(&self, py: Python<'_>, path: &Arc<Path>) -> PyResult<Operand> {
        if Arc::ptr_eq(&self.path, path) {
            return Ok(self.me());
        }
        self.plain(py).map(Operand::plain)
    }

    fn is_fixed(&self) -> bool {
        self.path.lock().is_fixed(self.term)
    }

    /// The plain value, which becomes a condition.
    fn plain(&self, py: Python<'_>) -> PyResult<i64> {
        self.path.fix(py, self.term, self.value)?;
        Ok(self.value)
    }

    fn plain_object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.plain(py)?.into_pyobject(py)?.into_any())
    }

    fn me(&self) -> Operand {
        Operand { value: self.value, term: (!self.is_fixed()).then_some(self.term) }
    }

    /// Another operand, if it is an integer of 64 bits.
    fn operand(&self, other: &Bound<'_, PyAny>) -> Option<Operand> {
        if other.is_exact_instance_of::<PyInt>() || other.is_exact_instance_of::<PyBool>() {
            return other.extract().ok().map(Operand::plain);
        }
        let other = other.cast::<Self>().ok()?.get();
        // One of another path is no operand: that path wants to know.
        Arc::ptr_eq(&self.path, &other.path).then(|| other.me())
    }

    /// `f(self, other)`, or `f(other, self)` when swapped; `name` is the function of the module `operator`.
    fn arithmetic<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        function: Function,
        name: &str,
        swapped: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let operand = self.operand(other);
        let me = self.me();
        let both = operand.map(|other| if swapped { (other, me) } else { (me, other) });
        if let Some((a, b)) = both
            && let Some(value) = function.apply(a.value, b.value)
        {
            // An exception at another place leaves the path, whether or not somebody uses the result.
            match function {
                Function::Quotient | Function::Remainder => self.path.ask(py, Function::Eq, b, Operand::plain(0))?,
                Function::Shl | Function::Shr => self.path.ask(py, Function::Lt, b, Operand::plain(0))?,
                _ => false,
            };
            return self.made(py, function, a, b, value);
        }
        // No formula: an operand of another kind, a result of more than 64 bits, or an error.
        self.by_python(other, name, swapped)
    }

    /// The same on plain numbers.
    fn by_python<'py>(&self, other: &Bound<'py, PyAny>, name: &str, swapped: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let me = self.plain_object(py)?;
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().plain_object(py)?,
            Err(_) => other.clone(),
        };
        let (a, b) = if swapped { (other, me) } else { (me, other) };
        py.import(intern!(py, "operator"))?.call_method1(name, (a, b))
    }

    /// The result of a function, with its formula where one of the operands has one.
    fn made<'py>(
        &self,
        py: Python<'py>,
        function: Function,
        a: Operand,
        b: Operand,
        value: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let neutral = match function {
            Function::Add | Function::Sub | Function::Or | Function::Xor | Function::Shl | Function::Shr => Some(0),
            Function::Mul | Function::Quotient => Some(1),
            _ => None,
        };
        let term = match (a.term, b.term) {
            (None, None) => return Ok(value.into_pyobject(py)?.into_any()),
            (Some(same), None) if neutral == Some(b.value) => same,
            _ => {
                let (a, b) = (self.path.term(a), self.path.term(b));
                self.path.formulas(|formulas| formulas.apply(function, a, b))
            }
        };
        Ok(Bound::new(py, Self { path: Arc::clone(&self.path), term, value })?.into_any())
    }

    /// `f(self)`.
    fn unary<'py>(&self, py: Python<'py>, function: Function) -> PyResult<Bound<'py, PyAny>> {
        match function.apply(self.value, self.value) {
            Some(value) => self.made(py, function, self.me(), self.me(), value),
            None => self.plain_object(py)?.call_method0(intern!(py, "__abs__")),
        }
    }
}

/// An argument of a `tl` call that is an integer.
pub(crate) enum Integer<'py> {
    Plain(i64),
    Symbolic(Bound<'py, SymbolicInt>),
}

impl<'py> FromPyObject<'_, 'py> for Integer<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match value.cast::<SymbolicInt>() {
            Ok(symbolic) => Ok(Self::Symbolic(symbolic.to_owned())),
            Err(_) => value.extract().map(Self::Plain),
        }
    }
}

impl<'py> Integer<'py> {
    pub(crate) fn object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Plain(value) => Ok(value.into_pyobject(py)?.into_any()),
            Self::Symbolic(symbolic) => Ok(symbolic.into_any()),
        }
    }

    /// Its value on a path, and its formula.
    pub(crate) fn on(&self, py: Python<'_>, path: &Arc<Path>) -> PyResult<Operand> {
        match self {
            Self::Plain(value) => Ok(Operand::plain(*value)),
            Self::Symbolic(symbolic) => symbolic.get().on(py, path),
        }
    }
}

#[pymethods]
impl SymbolicInt {
    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Add, "add", false)
    }

    fn __radd__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Add, "add", true)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Sub, "sub", false)
    }

    fn __rsub__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Sub, "sub", true)
    }

    fn __mul__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Mul, "mul", false)
    }

    fn __rmul__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Mul, "mul", true)
    }

    fn __floordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Quotient, "floordiv", false)
    }

    fn __rfloordiv__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Quotient, "floordiv", true)
    }

    fn __mod__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Remainder, "mod", false)
    }

    fn __rmod__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Remainder, "mod", true)
    }

    fn __lshift__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Shl, "lshift", false)
    }

    fn __rlshift__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Shl, "lshift", true)
    }

    fn __rshift__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Shr, "rshift", false)
    }

    fn __rrshift__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Shr, "rshift", true)
    }

    fn __and__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::And, "and_", false)
    }

    fn __rand__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::And, "and_", true)
    }

    fn __or__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Or, "or_", false)
    }

    fn __ror__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Or, "or_", true)
    }

    fn __xor__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Xor, "xor", false)
    }

    fn __rxor__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(other, Function::Xor, "xor", true)
    }

    fn __divmod__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(other.py(), [self.__floordiv__(other)?, self.__mod__(other)?])
    }

    fn __rdivmod__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(other.py(), [self.__rfloordiv__(other)?, self.__rmod__(other)?])
    }

    fn __truediv__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.by_python(other, "truediv", false)
    }

    fn __rtruediv__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.by_python(other, "truediv", true)
    }

    fn __pow__<'py>(&self, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.plain_object(other.py())?.pow(other, modulo)
    }

    fn __rpow__<'py>(&self, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        other.pow(self.plain_object(other.py())?, modulo)
    }

    fn __neg__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(&0i64.into_pyobject(py)?.into_any(), Function::Sub, "sub", true)
    }

    fn __invert__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arithmetic(&(-1i64).into_pyobject(py)?.into_any(), Function::Sub, "sub", true)
    }

    fn __pos__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __abs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.unary(py, Function::Abs)
    }

    fn bit_length<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.unary(py, Function::Length)
    }

    fn bit_count<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.unary(py, Function::Ones)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let Some(operand) = self.operand(other) else {
            let other = match other.cast::<Self>() {
                Ok(other) => other.get().plain_object(py)?,
                Err(_) => other.clone(),
            };
            return self.plain_object(py)?.rich_compare(other, op);
        };
        let me = self.me();
        let answer = match op {
            CompareOp::Lt => self.path.ask(py, Function::Lt, me, operand),
            CompareOp::Le => self.path.ask(py, Function::Le, me, operand),
            CompareOp::Gt => self.path.ask(py, Function::Lt, operand, me),
            CompareOp::Ge => self.path.ask(py, Function::Le, operand, me),
            CompareOp::Eq => self.path.ask(py, Function::Eq, me, operand),
            CompareOp::Ne => self.path.ask(py, Function::Eq, me, operand).map(|equal| !equal),
        }?;
        Ok(PyBool::new(py, answer).to_owned().into_any())
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.path.ask(py, Function::Eq, self.me(), Operand::plain(0)).map(|is_zero| !is_zero)
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<i64> {
        self.plain(py)
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<i64> {
        self.plain(py)
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.plain_object(py)?.extract()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.plain_object(py)?.hash()
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.plain(py)?.to_string())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.plain(py)?.to_string())
    }

    fn __format__<'py>(&self, spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = spec.py();
        self.plain_object(py)?.call_method1(intern!(py, "__format__"), (spec,))
    }

    #[pyo3(signature = (digits=None))]
    fn __round__<'py>(slf: Bound<'py, Self>, digits: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match digits {
            None => Ok(slf.into_any()),
            Some(digits) => slf.get().plain_object(py)?.call_method1(intern!(py, "__round__"), (digits,)),
        }
    }

    fn __trunc__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __floor__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __ceil__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (i64,))> {
        Ok((py.get_type::<PyInt>(), (self.plain(py)?,)))
    }

    /// `isinstance(x, int)` asks this.
    #[getter(__class__)]
    fn class<'py>(&self, py: Python<'py>) -> Bound<'py, PyType> {
        py.get_type::<PyInt>()
    }

    /// NumPy leaves operators to this class, which gives it plain numbers.
    #[classattr]
    fn __array_ufunc__() -> Option<bool> {
        None
    }

    /// The other attributes of an `int`.
    fn __getattr__<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = name.py();
        self.plain_object(py)?.getattr(name.cast()?)
    }
}
