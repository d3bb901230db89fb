//! The machine a program runs on.

use crate::costs::{CostsRow, Protocol, costs as costs_of};
use crate::errors;
use crate::features::MachineFeatures;
use crate::given::{Given, Wanted, given, wanted};
use crate::interrupt::interruptible;
use crate::operand;
use ahbm_emulator::training::{Lanes, Terms};
use ahbm_findings::Diagnostic;
use ahbm_machine::{CallCosts, Caps, Coord, DmaChannels, PeId};
use ahbm_synthesis::{Collective, least_by_io};
use ahbm_views::features::Fingerprint;
use ahbm_workload::{Arithmetic, DIMS, Kernel, Kind};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A resolved machine, immutable.
#[derive(Clone)]
#[pyclass(frozen, module = "ahbm._core")]
pub struct Machine {
    pub(crate) inner: Arc<ahbm_machine::Machine>,
    source: Arc<Source>,
}

wanted! {
    Bound<'_, Machine>: "a Machine",
    KernelRow: "a class, dimensions, operations, bytes, a type and whether it copies between device and host",
}

/// What a SIP computes a training job at.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct Roofline {
    /// Arithmetic operations per nanosecond in types of two bytes.
    operations_per_ns: f64,
    /// Bytes per nanosecond of the memory.
    bytes_per_ns: f64,
    /// Bytes per nanosecond of the link to the host, each way.
    host_bytes_per_ns: f64,
    /// Picoseconds to start a kernel.
    launch_ps: u64,
    /// Peak in f64 as a share of that in types of two bytes.
    f64_share: f64,
    /// Peak in f32 as a share of it.
    f32_share: f64,
    /// Peak in TF32 as a share of it.
    tf32_share: f64,
    /// Peak in types of one byte as a share of it.
    byte_share: f64,
}

/// What kernels of a training job take by their class and dimensions, and what their host takes.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct Compute {
    /// Every number by its path below `compute` of the topology, e.g. `"units"` or `"host.operation_ns"`.
    values: Py<PyDict>,
    /// Where the numbers are from, if the machine says it.
    source: Option<String>,
    /// How they were fitted, as the machine has it: a dict, or None.
    fit: Py<PyAny>,
}

/// Class, dimensions, operations, bytes, type of the operations, whether it copies between device and host.
type KernelRow = (PyBackedStr, Vec<u64>, u64, u64, PyBackedStr, bool);

/// The input from which a machine was made: enough to make it again.
struct Source {
    text: String,
    origin: String,
    overrides: Vec<(String, String)>,
}

/// Collective, ranks, first and last size, mean and largest error in percent.
type BandRow = (String, u32, u64, u64, f64, f64, Option<(f64, f64)>);

/// Text, origin and overrides, as `from_yaml` takes them.
type Arguments = (String, String, Vec<(String, String)>);

impl Machine {
    /// The machine as the messages of a call find it.
    fn under(&self, py: Python<'_>, call: &CallCosts) -> PyResult<Self> {
        let inner = self.inner.with_costs(call).map_err(|finding| errors::raise_one(py, finding))?;
        Ok(Self { inner: Arc::new(inner), source: Arc::clone(&self.source) })
    }

    /// The flat index of a physical place.
    pub(crate) fn place(&self, (sip, cube, pe): (u32, u32, u32)) -> Result<PeId, Diagnostic> {
        let at = Coord { sip, cube, pe };
        self.inner.pe(at).ok_or_else(|| {
            let sfr = self.inner.sfr();
            let shape = format!("{} SIPs of {} cubes of {} PEs", sfr.sips, sfr.cubes(), sfr.pes);
            Diagnostic::new("AHBM-T201", format!("{at} is not on the machine, which has {shape}"))
        })
    }
}

/// A kernel by its names. Raises `AHBM-C205` for an unknown one, `AHBM-C129` for more dimensions than a kernel has.
fn kernel_of(
    py: Python<'_>,
    kind: &str,
    given: &[u64],
    operations: u64,
    bytes: u64,
    arithmetic: &str,
    host: bool,
) -> PyResult<Kernel> {
    let Some(arithmetic) = Arithmetic::named(arithmetic) else {
        let names = Arithmetic::ALL.map(Arithmetic::name);
        return Err(errors::raise_one(py, *operand::unknown("AHBM-C205", "arithmetic", arithmetic, &names)));
    };
    let Some(kind) = Kind::named(kind) else {
        let names = Kind::ALL.map(Kind::name);
        return Err(errors::raise_one(py, *operand::unknown("AHBM-C205", "kind", kind, &names)));
    };
    if given.len() > DIMS {
        let text = format!("dims must be at most {DIMS} integers, not {}", given.len());
        return Err(errors::raise_one(py, Diagnostic::new("AHBM-C129", text)));
    }
    let mut dims = [0; DIMS];
    for (slot, &n) in dims.iter_mut().zip(given) {
        *slot = u32::try_from(n).unwrap_or(u32::MAX);
    }
    Ok(Kernel { operations, arithmetic, bytes, host, kind, dims })
}

#[pymethods]
impl Machine {
    /// Parses, validates and resolves a topology.
    ///
    /// `origin` names the text in errors; `overrides` are pairs of dotted path and YAML scalar, applied before
    /// validation. The interpreter lock is released meanwhile. Raises `TopologyError` with every finding, `ConfigError`
    /// (AHBM-C129).
    #[staticmethod]
    #[pyo3(signature = (text, origin, overrides=Given::ok(Vec::new())), text_signature = "(text, origin, overrides=())")]
    fn from_yaml(
        py: Python<'_>,
        text: Given<String>,
        origin: Given<String>,
        overrides: Given<Vec<(String, String)>>,
    ) -> PyResult<Self> {
        given!(text, origin, overrides);
        interruptible(py, || ahbm_machine::Machine::from_yaml(&text, &origin, &overrides))
            .map(|machine| Self { inner: Arc::new(machine), source: Arc::new(Source { text, origin, overrides }) })
    }

    /// The network between the SIPs in numbers.
    fn features(&self, py: Python<'_>) -> PyResult<MachineFeatures> {
        interruptible(py, || Ok(MachineFeatures::of(&Fingerprint::of(&self.inner))))
    }

    /// True when one switch reduces what any group of the SIPs sends, and copies what goes to any group.
    #[getter]
    fn switch_reduces(&self) -> bool {
        self.inner.switch_reduces()
    }

    /// Whether a switch reduces what these SIPs send to each other, and copies what goes to them.
    fn reduces(&self, sips: Given<Vec<u32>>) -> PyResult<bool> {
        given!(sips);
        Ok(self.inner.reducing_switch(sips).is_ok())
    }

    /// The least time in ps that the ports between cubes and I/O chiplets allow a collective of `nbytes` per share among
    /// the SIPs, whatever runs there, and which port it is; `root` and `dst` are SIPs. None where they limit nothing.
    fn least_by_io(
        &self,
        collective: Given<&str>,
        sips: Given<Vec<u32>>,
        nbytes: Given<u64>,
        root: Given<u32>,
        dst: Given<u32>,
    ) -> PyResult<Option<(u64, String)>> {
        given!(collective, sips, nbytes, root, dst);
        let least = |collective, sips: &[u32]| least_by_io(&self.inner, collective, sips, nbytes, root);
        let found = match Collective::parse(collective) {
            Some(collective) => least(collective, &sips),
            // As much leaves a sender, and enters a receiver, as of a broadcast between them.
            None if collective == "send_recv" && root != dst => least(Collective::Broadcast, &[root, dst]),
            None => None,
        };
        Ok(found.map(|least| (least.ps, least.by)))
    }

    /// Channels of a PE's DMA engine in each direction; None: one for each link between SIPs.
    #[getter]
    fn dma_channels(&self) -> Option<u32> {
        match self.inner.costs().dma_channels {
            DmaChannels::Any(count) => Some(count),
            DmaChannels::PerLink => None,
        }
    }

    /// Whether a renumbering of the SIPs that takes every `source[i]` to `target[i]` leaves the machine as it is: what
    /// runs on the SIPs `source` then takes the same time on the SIPs `target`. Lists of one length, of SIPs.
    fn carries(&self, source: Given<Vec<u32>>, target: Given<Vec<u32>>) -> PyResult<bool> {
        given!(source, target);
        Ok(self.inner.carries(&source, &target))
    }

    /// Number of SIPs.
    #[getter]
    fn sips(&self) -> u32 {
        self.inner.sfr().sips
    }

    /// SIPs of a node of `topology: nodes`; 1 in other networks.
    #[getter]
    fn node_size(&self) -> u32 {
        self.inner.node_size()
    }

    /// What was assumed where the machine's file was made from another one.
    #[getter]
    fn assumed(&self) -> Vec<String> {
        self.inner.assumed().to_vec()
    }

    /// Cubes per SIP.
    #[getter]
    fn cubes(&self) -> u32 {
        self.inner.sfr().cubes()
    }

    /// Width of a SIP's cube mesh.
    #[getter]
    fn cube_w(&self) -> u32 {
        self.inner.sfr().cube_w
    }

    /// Height of a SIP's cube mesh.
    #[getter]
    fn cube_h(&self) -> u32 {
        self.inner.sfr().cube_h
    }

    /// PEs per cube.
    #[getter]
    fn pes(&self) -> u32 {
        self.inner.sfr().pes
    }

    /// Name of the SIP network, e.g. `"torus_2d"`.
    #[getter]
    fn topology(&self) -> &str {
        self.inner.topology_name()
    }

    /// Width of the SIP grid; 0 where the network is no grid.
    #[getter]
    fn sip_w(&self) -> u32 {
        self.inner.sip_w()
    }

    /// Height of the SIP grid; 0 where the network is no grid.
    #[getter]
    fn sip_h(&self) -> u32 {
        self.inner.sip_h()
    }

    /// Depth of the SIP grid (1 in two dimensions); 0 where the network is no grid.
    #[getter]
    fn sip_d(&self) -> u32 {
        self.inner.sip_d()
    }

    /// Names of the memory tiers that queue slots can live in, in declaration order.
    #[getter]
    fn tiers(&self) -> Vec<String> {
        self.inner.costs().tiers.keys().cloned().collect()
    }

    /// The protocols of the communication library, in the order of the file.
    #[getter]
    fn protocols(&self) -> Vec<Protocol> {
        self.inner.protocols().iter().map(Protocol::new).collect()
    }

    /// The algorithms of the communication library by collective, in the order of the file.
    #[getter]
    fn library(&self) -> Vec<(&str, Vec<String>)> {
        self.inner.library().clone()
    }

    /// Where a machine that was fitted to measurements is valid, and how far it was off there at sizes that were held back:
    /// collective, ranks, first and last bytes of one rank's array, mean and largest error in percent, and what eight of ten
    /// other clusters of its kind take more than it, in percent, where that is known. None for a machine that was fitted to
    /// none.
    #[getter]
    fn bands(&self) -> Option<Vec<BandRow>> {
        let row = |band: &ahbm_machine::Band| {
            let errors = (band.mean_percent, band.worst_percent);
            let sizes = (band.from_bytes, band.to_bytes);
            (band.collective.clone(), band.ranks, sizes.0, sizes.1, errors.0, errors.1, band.others_percent)
        };
        self.inner.bands().map(|bands| bands.iter().map(row).collect())
    }

    /// The sizes that each protocol was fitted to: its name, ranks, first and last bytes of one rank's array.
    #[getter]
    fn ranges(&self) -> Vec<(String, u32, u64, u64)> {
        self.inner.ranges().to_vec()
    }

    /// The protocol that all runs use; None where each takes the quickest of those that its size allows.
    #[getter]
    fn protocol(&self) -> Option<&str> {
        self.inner.protocol()
    }

    /// Bytes in which kernels pass on what arrives, by the protocol of its call or of all runs; 0 where it does not say.
    #[getter]
    fn slice_bytes(&self) -> u64 {
        self.inner.protocol_of_call().map_or(0, |(_, of)| of.slice_bytes)
    }

    /// The host's start of a collective that runs alone, in ps.
    #[getter]
    fn launch_ps(&self) -> u64 {
        self.inner.costs().launch_ps
    }

    /// The reference that names the topology: a path, or `packaged NAME.yaml`.
    #[getter]
    fn origin(&self) -> &str {
        &self.source.origin
    }

    /// The overrides that it was made with: pairs of dotted path and YAML scalar.
    #[getter]
    fn overrides(&self) -> Vec<(String, String)> {
        self.source.overrides.clone()
    }

    /// The machine with further overrides, as `from_yaml` takes them, laid over its own. Raises as `from_yaml`.
    fn changed(&self, py: Python<'_>, overrides: Given<Vec<(String, String)>>) -> PyResult<Self> {
        given!(overrides);
        let Source { text, origin, overrides: own } = &*self.source;
        let overrides = [own.clone(), overrides].concat();
        let plain = Self::from_yaml(py, Given::ok(text.clone()), Given::ok(origin.clone()), Given::ok(overrides))?;
        plain.under(py, self.inner.call())
    }

    /// The machine as the messages of a call find it: with its protocol at its size, its channels and interfaces. All else
    /// is that of the machine: parameters, overrides and hash.
    ///
    /// n bytes of one rank's array get 1 / (1 + (ramp_bytes / n)^ramp_exponent) of a protocol's bandwidths. A protocol for
    /// all runs goes before that of the call. Raises `DataError` (AHBM-V125) for a protocol that the machine does not have.
    fn with_costs(&self, py: Python<'_>, costs: Given<CostsRow>) -> PyResult<Self> {
        given!(costs);
        self.under(py, &costs_of(costs))
    }

    /// GB/s of payload that the protocol of a call or of all runs lets a link between SIPs carry, the way of a SIP between
    /// nodes, and all ways of a node together; None where the wires themselves have no more than `alike` times as much, and
    /// without a protocol.
    fn caps(&self, alike: Given<f64>) -> PyResult<Option<Caps>> {
        given!(alike);
        Ok(self.inner.caps(alike))
    }

    /// Whether a library's collective is spread over the interfaces of its SIPs in a node.
    #[getter]
    fn striped(&self) -> bool {
        self.inner.striped()
    }

    /// Every parameter by its dotted path, as text with its unit: ps, GB/s, or none.
    #[getter]
    fn parameters(&self) -> Vec<(String, String)> {
        let pair = |line: &str| line.rsplit_once('=').map(|(path, value)| (path.to_owned(), value.to_owned()));
        self.inner.canonical().lines().filter_map(pair).collect()
    }

    /// Pickles and copies are made anew from the same text, and given the same costs.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let class = py.get_type::<Self>();
        if *self.inner.call() == CallCosts::default() {
            let Source { text, origin, overrides } = &*self.source;
            let arguments: Arguments = (text.clone(), origin.clone(), overrides.clone());
            return Ok((class.getattr("from_yaml")?, arguments.into_pyobject(py)?));
        }
        let plain = self.under(py, &CallCosts::default())?;
        let CallCosts { protocol, nbytes, channels, math_per_ns, interfaces, even, part } = self.inner.call().clone();
        let row = (protocol, nbytes, channels, math_per_ns, interfaces, even, part);
        Ok((class.getattr("with_costs")?, (plain, row).into_pyobject(py)?))
    }

    /// What a SIP computes a training job at.
    #[getter]
    fn roofline(&self) -> Roofline {
        let ahbm_machine::Roofline {
            operations_per_ns,
            bytes_per_ns,
            host_bytes_per_ns,
            launch,
            f64_share,
            f32_share,
            tf32_share,
            byte_share,
        } = *self.inner.roofline();
        let launch_ps = launch;
        Roofline {
            operations_per_ns,
            bytes_per_ns,
            host_bytes_per_ns,
            launch_ps,
            f64_share,
            f32_share,
            tf32_share,
            byte_share,
        }
    }

    /// How long a kernel of a training job takes on a SIP, in picoseconds: what a replay gives a computation of this name
    /// that states no duration.
    ///
    /// `arithmetic` is the type of its operations: "f16" for all of two bytes, "f32", "tf32", "f64", or "f8" for all of one
    /// byte. `host`: it copies the bytes between the device and its host. `kind` is its class and `dims` are its
    /// dimensions, at most 10 (docs/device.md); on a machine with `compute` they say how long it takes, and "plain" says
    /// that only operations and bytes are known. `factors` are pairs of a text and a factor for kernels with the text in
    /// their name; the first that fits counts. Raises `ConfigError`: AHBM-C205 for an unknown type or class, AHBM-C129 for
    /// more dimensions, AHBM-C193 where the machine does not say what it computes at.
    #[pyo3(signature = (name, operations, nbytes, *, arithmetic=Given::ok("f16"), host=Given::ok(false), kind=Given::ok("plain"), dims=Given::ok(Vec::new()), factors=Given::ok(Vec::new())),
           text_signature = "($self, name, operations, nbytes, *, arithmetic='f16', host=False, kind='plain', dims=(), factors=())")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn kernel_ps(
        &self,
        py: Python<'_>,
        name: Given<&str>,
        operations: Given<u64>,
        nbytes: Given<u64>,
        arithmetic: Given<&str>,
        host: Given<bool>,
        kind: Given<&str>,
        dims: Given<Vec<u64>>,
        factors: Given<Vec<(String, f64)>>,
    ) -> PyResult<u64> {
        given!(name, operations, nbytes, arithmetic, host, kind, dims, factors);
        let kernel = kernel_of(py, kind, &dims, operations, nbytes, arithmetic, host)?;
        self.check_computes(py)?;
        Ok(Terms::of(&self.inner, Lanes::default(), factors).kernel(name, &kernel))
    }

    /// How long each of many kernels takes, in picoseconds: as `kernel_ps` for a class, dimensions, operations, bytes, type
    /// of the operations, and whether it copies between the device and its host. Raises as `kernel_ps`.
    fn kernels_ps(&self, py: Python<'_>, kernels: Given<Vec<KernelRow>>) -> PyResult<Vec<u64>> {
        given!(kernels);
        self.check_computes(py)?;
        let terms = Terms::of(&self.inner, Lanes::default(), Vec::new());
        let ps = |(kind, dims, operations, nbytes, arithmetic, host): KernelRow| {
            let kernel = kernel_of(py, &kind, &dims, operations, nbytes, &arithmetic, host)?;
            Ok(terms.kernel("", &kernel))
        };
        kernels.into_iter().map(ps).collect()
    }

    /// What its kernels take by their class and dimensions, and its host; None where the machine has no `compute`.
    #[getter]
    fn compute(&self, py: Python<'_>) -> PyResult<Option<Compute>> {
        let Some(law) = self.inner.compute() else { return Ok(None) };
        let (source, fit) = self.inner.compute_source();
        let values = PyDict::new(py);
        for (path, value) in law.values() {
            values.set_item(path, value)?;
        }
        let fit = py.import("json")?.call_method1("loads", (fit.to_string(),))?.unbind();
        Ok(Some(Compute { values: values.unbind(), source: source.map(str::to_owned), fit }))
    }

    /// Raises ConfigError (AHBM-C193) where nobody has said what it computes at.
    fn check_computes(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.computes().map_err(|finding| errors::raise_one(py, finding))
    }

    /// The accelerator whose data sheet `roofline` is, and that sheet; None for what the machine does not name.
    #[getter]
    fn sheet(&self) -> (Option<&str>, Option<&str>) {
        self.inner.sheet()
    }

    /// Stable 64-bit hash of everything that influences timing.
    #[getter]
    fn hash(&self) -> u64 {
        self.inner.hash()
    }

    /// The machine as text: shape, links by class, memories, costs, slot tiers.
    fn describe(&self) -> String {
        self.inner.dump()
    }

    /// Names of the links between SIPs that are not dead, e.g. `"sip0->sip1"`.
    fn links_between_sips(&self) -> Vec<String> {
        self.inner.links_between_sips().map(|ends| self.inner.link_name(ends.link)).collect()
    }

    /// Names of the links between cubes of a SIP that are not dead, the first connection of each port, e.g.
    /// `"sip0.cube3.ucie_E0"`; none for a SIP that is not there.
    fn links_between_cubes(&self, sip: Given<u32>) -> PyResult<Vec<String>> {
        given!(sip);
        if sip >= self.inner.sfr().sips {
            return Ok(Vec::new());
        }
        Ok(self.inner.links_between_cubes(sip).map(|link| self.inner.link_name(link)).collect())
    }

    /// A drawing of the SIP network and of one SIP, as an SVG document.
    fn svg(&self) -> String {
        self.inner.to_svg()
    }

    /// The drawing, where a notebook shows the machine.
    fn _repr_svg_(&self) -> String {
        self.svg()
    }

    fn __repr__(&self) -> String {
        let sfr = self.inner.sfr();
        let (w, h, pes) = (sfr.cube_w, sfr.cube_h, sfr.pes);
        format!("<machine {} of {} SIPs, {w}x{h} cubes, {pes} PEs per cube>", self.topology(), sfr.sips)
    }
}
