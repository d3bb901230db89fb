//! The machine a program runs on.

use crate::errors;
use ahbm_machine::{Coord, Diagnostic, PeId, SipNetwork};
use pyo3::prelude::*;
use std::sync::Arc;

/// A resolved machine, immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Machine {
    pub(crate) inner: Arc<ahbm_machine::Machine>,
}

impl Machine {
    /// The flat index of a physical place.
    pub(crate) fn place(&self, (sip, cube, pe): (u32, u32, u32)) -> Result<PeId, Diagnostic> {
        let at = Coord { sip, cube, pe };
        self.inner.pe(at).ok_or_else(|| {
            let sfr = self.inner.sfr();
            let shape = format!("{} SIPs of {} cubes of {} PEs", sfr.sips, sfr.cube_w * sfr.cube_h, sfr.pes);
            Diagnostic::new("AHBM-T201", format!("{at} is not on the machine, which has {shape}"))
        })
    }
}

#[pymethods]
impl Machine {
    /// Parses, validates and resolves a topology.
    ///
    /// `origin` names the text in errors; `overrides` are pairs of dotted path and YAML scalar, applied before
    /// validation. Raises `TopologyError` with every finding.
    #[staticmethod]
    #[pyo3(signature = (text, origin, overrides=Vec::new()), text_signature = "(text, origin, overrides=())")]
    fn from_yaml(py: Python<'_>, text: &str, origin: &str, overrides: Vec<(String, String)>) -> PyResult<Self> {
        errors::guard(|| ahbm_machine::Machine::from_yaml(text, origin, &overrides))
            .map(|machine| Self { inner: Arc::new(machine) })
            .map_err(|findings| errors::raise(py, &findings))
    }

    /// Number of SIPs.
    #[getter]
    fn sips(&self) -> u32 {
        self.inner.sfr().sips
    }

    /// Cubes per SIP.
    #[getter]
    fn cubes(&self) -> u32 {
        self.inner.sfr().cube_w * self.inner.sfr().cube_h
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
    fn topology(&self) -> &'static str {
        network_name(&self.inner.sfr().network)
    }

    /// Width of the SIP grid; 0 where the network is no grid.
    #[getter]
    fn sip_w(&self) -> u32 {
        self.grid().0
    }

    /// Height of the SIP grid; 0 where the network is no grid.
    #[getter]
    fn sip_h(&self) -> u32 {
        self.grid().1
    }

    /// Depth of the SIP grid (1 in two dimensions); 0 where the network is no grid.
    #[getter]
    fn sip_d(&self) -> u32 {
        self.grid().2
    }

    /// Names of the memory tiers that queue slots can live in, in declaration order.
    #[getter]
    fn tiers(&self) -> Vec<String> {
        self.inner.costs().tiers.keys().cloned().collect()
    }

    /// Stable 64-bit hash of everything that influences timing.
    #[getter]
    fn hash(&self) -> u64 {
        self.inner.hash()
    }

    fn __repr__(&self) -> String {
        let sfr = self.inner.sfr();
        let (w, h, pes) = (sfr.cube_w, sfr.cube_h, sfr.pes);
        format!("<machine {} of {} SIPs, {w}x{h} cubes, {pes} PEs per cube>", self.topology(), sfr.sips)
    }
}

impl Machine {
    fn grid(&self) -> (u32, u32, u32) {
        match self.inner.sfr().network {
            SipNetwork::Grid { w, h, d, .. } => (w, h, d),
            _ => (0, 0, 0),
        }
    }
}

/// The name a topology file uses for a network.
pub(crate) fn network_name(network: &SipNetwork) -> &'static str {
    match network {
        SipNetwork::Ring => "ring_1d",
        SipNetwork::Grid { d: 1, wrap: true, .. } => "torus_2d",
        SipNetwork::Grid { d: 1, wrap: false, .. } => "mesh_2d_no_wrap",
        SipNetwork::Grid { wrap: true, .. } => "torus_3d",
        SipNetwork::Grid { wrap: false, .. } => "mesh_3d",
        SipNetwork::Hypercube { .. } => "hypercube",
        SipNetwork::FullyConnected => "fully_connected",
        SipNetwork::Switch => "switch",
        SipNetwork::Custom => "custom",
    }
}
