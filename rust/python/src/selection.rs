//! Choices among algorithms.

use crate::errors;
use crate::given::{Given, given};
use ahbm_findings::Diagnostic;
use ahbm_selection::{Call, Input, Rule, Rules, Span, Tree};
use pyo3::prelude::*;

/// A decision tree in flat arrays. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct DecisionTree {
    inner: Tree,
}

#[pymethods]
impl DecisionTree {
    /// Arrays with an entry per node, as scikit-learn has them: `feature` indexes `inputs` and is negative for a leaf,
    /// `left` is the way where the input is at most `threshold`, `value` the answer of a leaf. An input is the name of
    /// a fact about the call (`DecisionTree.inputs`), or a number: a fact about the machine.
    ///
    /// Raises ConfigError: `AHBM-C129` for an input that is neither, `AHBM-C181` for arrays that are no tree.
    #[new]
    fn new(
        inputs: Given<Vec<Bound<'_, PyAny>>>,
        feature: Given<Vec<i64>>,
        threshold: Given<Vec<f64>>,
        left: Given<Vec<i64>>,
        right: Given<Vec<i64>>,
        value: Given<Vec<u32>>,
    ) -> PyResult<Self> {
        given!(inputs, feature, threshold, left, right, value);
        let inputs = inputs.iter().map(input).collect::<PyResult<_>>()?;
        match Tree::new(inputs, &feature, &threshold, &left, &right, &value) {
            Ok(inner) => Ok(Self { inner }),
            Err(wrong) => Err(raised("AHBM-C181", format!("no decision tree: {wrong}"))),
        }
    }

    /// Names of the facts about a call that a tree may ask for.
    #[staticmethod]
    fn inputs() -> Vec<&'static str> {
        Input::NAMED.iter().map(|&(name, _)| name).collect()
    }

    /// The value of the leaf for a call of `nbytes` bytes of one rank's array.
    #[pyo3(signature = (nbytes, ranks, nodes=Given::ok(1), item=Given::ok(1)))]
    fn choose(&self, nbytes: Given<u64>, ranks: Given<u32>, nodes: Given<u32>, item: Given<u32>) -> PyResult<u32> {
        given!(nbytes, ranks, nodes, item);
        Ok(self.inner.choose(&Call { bytes: nbytes, ranks, nodes, item }))
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// Collective, least and most bytes, whether those are per rank, least and most ranks, nodes, and ranks per node.
type Row = (String, u64, u64, bool, u64, u64, u64, u64, u64, u64);

/// Ordered rules, of which the first that fits a call is taken. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct RuleTable {
    inner: Rules,
}

#[pymethods]
impl RuleTable {
    /// A row per rule: collective, least and most bytes of one rank's array, whether they are compared with the array's
    /// divided by the ranks and rounded down, least and most ranks, nodes, and ranks per node. All bounds are included.
    #[new]
    fn new(rows: Given<Vec<Row>>) -> PyResult<Self> {
        given!(rows);
        let span = |least, most| Span { least, most };
        let rule = |(collective, b, bytes, per_rank, r, ranks, n, nodes, e, each): Row| Rule {
            collective,
            bytes: span(b, bytes),
            per_rank,
            ranks: span(r, ranks),
            nodes: span(n, nodes),
            ranks_per_node: span(e, each),
        };
        Ok(Self { inner: Rules::new(rows.into_iter().map(rule).collect()) })
    }

    /// Position of the first row from `after` on that fits a call of `nbytes` bytes of one rank's array; None where
    /// none does.
    #[pyo3(signature = (collective, nbytes, ranks, nodes=Given::ok(1), after=Given::ok(0)))]
    fn first(
        &self,
        collective: Given<&str>,
        nbytes: Given<u64>,
        ranks: Given<u32>,
        nodes: Given<u32>,
        after: Given<u32>,
    ) -> PyResult<Option<u32>> {
        given!(collective, nbytes, ranks, nodes, after);
        Ok(self.inner.first(collective, &Call { bytes: nbytes, ranks, nodes, item: 1 }, after))
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

fn input(value: &Bound<'_, PyAny>) -> PyResult<Input> {
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Input::Constant(number));
    }
    let name = value.extract::<String>().unwrap_or_default();
    match Input::NAMED.iter().find(|(known, _)| *known == name) {
        Some(&(_, input)) => Ok(input),
        None => {
            let known: Vec<&str> = Input::NAMED.iter().map(|&(name, _)| name).collect();
            Err(raised("AHBM-C129", format!("inputs must be numbers or of {}, not {name:?}", known.join(", "))))
        }
    }
}

fn raised(code: &'static str, text: String) -> PyErr {
    Python::attach(|py| errors::raise_one(py, Diagnostic::new(code, text)))
}
