//! What a plan says, whether it is right, the files it can be written to, and the program it becomes on a machine.

use crate::errors;
use crate::formats::PyDocument;
use crate::given::{Given, given};
use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::program::Program;
use ahbm_check::{PlanCheck, Verdict, as_blocks, check_plan};
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::PlanOptions;
use ahbm_formats::convert;
use ahbm_plan::{BY_PROTOCOL, LowerOptions, Protocol, Reduction, Region};
use ahbm_program::Dtype;
use ahbm_wire::store::store;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;

/// Verdict, least depth, findings, and elements and picoseconds of the run with numbers.
type Checked<'py> = (&'static str, Option<u32>, Bound<'py, PyList>, Option<(u64, u64)>);

/// Buffer, first byte and size of a rank's operand, result and scratch.
type Regions = [(u32, u64, u64); 3];

#[pymethods]
impl PyDocument {
    /// Name of the file format, e.g. `"msccl_xml"`; `"plan"` for one that was made in memory.
    #[getter]
    fn format(&self) -> &'static str {
        self.inner.format()
    }

    /// Name of what it computes, `"custom"` when no post-condition is known.
    #[getter]
    fn collective(&self) -> &'static str {
        self.algorithm().goal().name()
    }

    /// The rank that a rooted collective is rooted at; None for others.
    #[getter]
    fn root(&self) -> Option<u32> {
        self.algorithm().goal().parameter().and_then(|(name, root)| (name == "root").then_some(root))
    }

    /// The sizes of one rank's array in bytes that it is meant for, as it says: the least, and the most, None for any.
    #[getter]
    fn sizes(&self) -> (u64, Option<u64>) {
        self.algorithm().sizes()
    }

    /// Number of ranks.
    #[getter]
    fn ranks(&self) -> u64 {
        self.algorithm().ranks()
    }

    /// Number of steps over all ranks, as the file counts them.
    #[getter]
    fn ops(&self) -> u64 {
        self.inner.steps()
    }

    /// True when its thread blocks talk through queues, whose depth a run has to choose.
    #[getter]
    fn queues(&self) -> bool {
        self.algorithm().depth(BY_PROTOCOL, None).is_some()
    }

    /// Messages that its queues hold, `slots` as in `lower`: where that leaves it open, those of `protocol`, without one of
    /// the plan's own. None without queues.
    #[pyo3(signature = (slots=Given::ok(Some(BY_PROTOCOL)), protocol=Given::ok(None)),
           text_signature = "($self, slots=0, protocol=None)")]
    fn depth(&self, py: Python<'_>, slots: Given<Option<u32>>, protocol: Given<Option<&str>>) -> PyResult<Option<u32>> {
        given!(slots, protocol);
        let protocol = protocol.map(parsed).transpose().map_err(|finding| errors::raise_one(py, finding))?;
        Ok(self.algorithm().depth(slots.unwrap_or(u32::MAX), protocol))
    }

    /// The protocol that the plan of thread blocks was written for: "Simple", "LL" or "LL128"; None for others.
    #[getter]
    fn protocol(&self) -> Option<&'static str> {
        self.inner.protocol().map(Protocol::name)
    }

    /// True when it says which bytes go where; a Chakra trace may say only how many.
    #[getter]
    fn buffers(&self) -> bool {
        self.algorithm().has_buffers()
    }

    /// True when it runs with input and output in one memory.
    #[getter]
    fn in_place(&self) -> bool {
        self.algorithm().in_place()
    }

    /// True when it is for calls whose input and output are two memories; a plan may be for both kinds.
    #[getter]
    fn out_of_place(&self) -> bool {
        self.algorithm().out_of_place()
    }

    /// Sizes, in bytes of the larger of operand and result, are multiples of this for elements of `item` bytes; 1 for a
    /// trace without buffers.
    #[pyo3(text_signature = "($self, item)")]
    fn unit(&self, item: Given<u64>) -> PyResult<u64> {
        given!(item);
        Ok(self.algorithm().unit(item))
    }

    /// Why a real runtime would not load it or would misread it: dicts with the keys of `Finding.to_json`.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        errors::to_list(py, self.inner.warnings())
    }

    /// Whether it computes what it says, whatever the order of its thread blocks.
    ///
    /// `slots` is the depth of queues, `None` unbounded, 0 what the runtime has for the protocol; `seed` chooses the random ones among the `orders` of the
    /// thread blocks that are tried; `calls` is how often the plan is issued in a row. Returns the verdict
    /// (`"correct"`, `"wrong"`, `"deadlock"`, `"race"`, `"no_expectation"`, `"unsupported"`, `"malformed"`), the least
    /// depth that completes, findings as in `warnings`, and for a correct plan what a run with numbers has confirmed:
    /// elements compared, and the time of that run in picoseconds. The interpreter lock is released meanwhile.
    #[pyo3(signature = (
        *, slots=Given::ok(Some(BY_PROTOCOL)), orders=Given::ok(4), seed=Given::ok(0), calls=Given::ok(2)),
            text_signature = "($self, *, slots=0, orders=4, seed=0, calls=2)")]
    fn check<'py>(
        &self,
        py: Python<'py>,
        slots: Given<Option<u32>>,
        orders: Given<u32>,
        seed: Given<u64>,
        calls: Given<u32>,
    ) -> PyResult<Checked<'py>> {
        given!(slots, orders, seed, calls);
        let options = PlanCheck { budget: self.budget, slots: slots.unwrap_or(u32::MAX), orders, seed, calls };
        logs::refresh(py, &[Part::Check]);
        let verdict = interruptible(py, || Ok(check_plan(self.algorithm(), &options)))?;
        let verdict = self.whole.iter().fold(verdict, Verdict::blaming);
        let proof = verdict.proof.map(|proof| (proof.elements, proof.time_ps));
        Ok((verdict.outcome.name(), verdict.min_slots, errors::to_list(py, &verdict.findings)?, proof))
    }

    /// Writes it in the format that the name says: .xml, .json or .et. Returns the paths, one per rank for .et.
    ///
    /// `nbytes` is the size by which a trace states its messages; `link_order` orders its sends by link; `slots` is how
    /// many messages the queues of an execution plan hold, None what it was read with. `min_bytes` and
    /// `max_bytes` (0 is unlimited) are the sizes it is meant for; None keeps what it says. The
    /// interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U291, U292) for what the format cannot
    /// express and `FormatError` (AHBM-F102) for what cannot be written; then nothing was.
    #[pyo3(signature = (path, *, nbytes=Given::ok(None), min_bytes=Given::ok(None), max_bytes=Given::ok(None),
                        link_order=Given::ok(true), slots=Given::ok(None)),
           text_signature = "($self, path, *, nbytes=None, min_bytes=None, max_bytes=None, link_order=True, slots=None)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn save(
        &self,
        py: Python<'_>,
        path: Given<PathBuf>,
        nbytes: Given<Option<u64>>,
        min_bytes: Given<Option<u64>>,
        max_bytes: Given<Option<u64>>,
        link_order: Given<bool>,
        slots: Given<Option<u32>>,
    ) -> PyResult<Vec<PathBuf>> {
        given!(path, nbytes, min_bytes, max_bytes, link_order, slots);
        let (slots, budget) = (slots.unwrap_or(self.slots), self.budget);
        let work = || {
            let mut plan = as_blocks(self.algorithm(), &PlanCheck { budget, slots, ..PlanCheck::default() })?;
            if min_bytes.is_some() || max_bytes.is_some() {
                let plan = plan.to_mut();
                (plan.min_bytes, plan.max_bytes) = (min_bytes.or(plan.min_bytes), max_bytes.or(plan.max_bytes));
            }
            let files = convert::render(&plan, &path, slots, &budget, &PlanOptions { bytes: nbytes, link_order })?;
            store(&files).map_err(|finding| vec![finding])?;
            Ok(files.into_iter().map(|file| file.path).collect())
        };
        interruptible(py, work)
    }

    /// The plan as a program on `machine`, for `nbytes` bytes of the larger of operand and result.
    ///
    /// `slots` is the depth of queues, `None` unbounded, 0 what the runtime has for the protocol; `tier` names the memory of their slots. `slice_bytes` is the
    /// size of the largest message, None what the protocol has. `sips` are the SIPs of the ranks, without any the
    /// first; ranks that only relay come last. Returns the program, per rank that takes part the `(buffer, offset,
    /// bytes)` of operand, result and scratch, and the bytes of a chunk. Without `buffers` there are no such ranks and
    /// messages are zeros; `nbytes` is 0 where the trace states sizes, and `stated` the size for which it states them: they
    /// are scaled. The interpreter lock is released meanwhile.
    /// Raises `FormatError`, `LintError`, `BudgetError`, `UnsupportedError`.
    #[pyo3(signature = (machine, *, nbytes, dtype, op=Given::ok("sum"), slots=Given::ok(Some(BY_PROTOCOL)),
            protocol=Given::ok(None), instances=Given::ok(1), tier=Given::ok("tcm"), credit_bytes=Given::ok(16),
            slice_bytes=Given::ok(None), sips=Given::ok(Vec::new()), stated=Given::ok(0)),
           text_signature = "($self, machine, *, nbytes, dtype, op='sum', slots=0, protocol=None, instances=1, tier='tcm', credit_bytes=16, slice_bytes=None, sips=(), stated=0)")]
    #[allow(clippy::too_many_arguments)]
    fn lower(
        &self,
        py: Python<'_>,
        machine: Given<Bound<'_, Machine>>,
        nbytes: Given<u64>,
        dtype: Given<&str>,
        op: Given<&str>,
        slots: Given<Option<u32>>,
        protocol: Given<Option<&str>>,
        instances: Given<u32>,
        tier: Given<&str>,
        credit_bytes: Given<u64>,
        slice_bytes: Given<Option<u64>>,
        sips: Given<Vec<u32>>,
        stated: Given<u64>,
    ) -> PyResult<(Program, Vec<Regions>, u64)> {
        given!(machine, nbytes, dtype, op, slots, protocol, instances, tier, credit_bytes, slice_bytes, sips, stated);
        let machine = machine.get();
        let options = || -> Result<LowerOptions, Diagnostic> {
            let dtype =
                Dtype::parse(dtype).ok_or_else(|| Diagnostic::new("AHBM-K207", format!("unknown dtype {dtype:?}")))?;
            let tiers = &machine.inner.costs().tiers;
            let tier = tiers.get_index_of(tier).ok_or_else(|| {
                let names = tiers.keys().cloned().collect::<Vec<_>>().join(", ");
                Diagnostic::new("AHBM-C202", format!("the machine has no tier {tier:?}"))
                    .hint(format!("one of {names}"))
            })?;
            Ok(LowerOptions {
                stated_bytes: stated,
                reduction: Reduction::parse(op)?,
                slots: slots.unwrap_or(u32::MAX),
                tier: tier as u32,
                credit_bytes,
                instances,
                protocol: protocol.map(parsed).transpose()?,
                slice_bytes,
                sips,
                budget: self.budget,
                ..LowerOptions::new(nbytes, dtype)
            })
        };
        let options = options().map_err(|finding| errors::raise_one(py, finding))?;
        let lowered = interruptible(py, || self.algorithm().lower(&machine.inner, &options))?;
        let region = |r: Region| (r.buffer.0, r.offset, r.bytes);
        let ranks = lowered.ranks.iter().map(|r| [region(r.input), region(r.output), region(r.scratch)]).collect();
        let program = Program { later: lowered.later, ..Program::checked(py, lowered.program, machine, 0)? };
        Ok((program, ranks, lowered.chunk_bytes))
    }

    fn __repr__(&self) -> String {
        format!("<plan {} {} of {} ranks>", self.format(), self.collective(), self.ranks())
    }
}

/// A protocol by name. `AHBM-C210` for another.
fn parsed(name: &str) -> Result<Protocol, Diagnostic> {
    Protocol::parse(name).ok_or_else(|| {
        Diagnostic::new("AHBM-C210", format!("unknown protocol {name:?}"))
            .hint(Protocol::ALL.map(Protocol::name).join(", "))
    })
}
