//! What a SIP computes at.

use crate::Machine;
use crate::declared::Topology;
use crate::rate::Ps;
use ahbm_findings::Diagnostic;

/// The rates of a SIP, and what starting a kernel takes. All but the start of a kernel may be infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Arithmetic operations per nanosecond in types of two bytes.
    pub operations_per_ns: f64,
    /// Bytes per nanosecond of the memory.
    pub bytes_per_ns: f64,
    /// Bytes per nanosecond of the link to the host.
    pub host_bytes_per_ns: f64,
    /// Starting a kernel.
    pub launch: Ps,
    /// Peak in f64 as a share of the peak.
    pub f64_share: f64,
    /// Peak in f32 as a share of the peak.
    pub f32_share: f64,
    /// Peak in TF32 as a share of the peak.
    pub tf32_share: f64,
    /// Peak in types of one byte as a share of the peak.
    pub byte_share: f64,
}

impl Default for Roofline {
    /// Costs nothing.
    fn default() -> Self {
        let free = f64::INFINITY;
        let [f64_share, f32_share, tf32_share, byte_share] = [0.0625, 0.0625, 0.5, 2.0];
        Self {
            operations_per_ns: free,
            bytes_per_ns: free,
            host_bytes_per_ns: free,
            launch: 0,
            f64_share,
            f32_share,
            tf32_share,
            byte_share,
        }
    }
}

impl Roofline {
    pub(crate) fn new(declared: &Topology, pes: f64) -> Self {
        let pe = &declared.pe;
        let macs = pe.gemm.macs_per_ns.0;
        let by_gemm = if macs == u64::MAX { f64::INFINITY } else { 2.0 * macs as f64 };
        let peak = pe.roofline.peak_tflops.map_or(by_gemm, |tflops| tflops.0 * 1000.0);
        let port = pe.hbm.pc_bandwidth_gbs.gbs() * f64::from(pe.hbm.pseudo_channels.0);
        let usual = Self::default();
        Self {
            operations_per_ns: peak * pes,
            bytes_per_ns: pe.roofline.memory_gbs.map_or(port, |gbs| gbs.0) * pes,
            host_bytes_per_ns: pe.roofline.host_gbs.map_or(32.0, |gbs| gbs.0),
            launch: pe.roofline.launch_ns.map_or(0, |ns| ns.0),
            f64_share: pe.roofline.f64_share.map_or(usual.f64_share, |share| share.0),
            f32_share: pe.roofline.f32_share.map_or(usual.f32_share, |share| share.0),
            tf32_share: pe.roofline.tf32_share.map_or(usual.tf32_share, |share| share.0),
            byte_share: pe.roofline.byte_share.map_or(usual.byte_share, |share| share.0),
        }
    }
}

impl Machine {
    /// The accelerator whose data sheet the roofline is, and that sheet, where the machine names them.
    pub fn sheet(&self) -> (Option<&str>, Option<&str>) {
        (self.sheet[0].as_deref(), self.sheet[1].as_deref())
    }

    /// Whether anybody has said what it computes at.
    ///
    /// # Errors
    /// `AHBM-C193` where nobody has.
    pub fn computes(&self) -> Result<(), Diagnostic> {
        if self.computes {
            return Ok(());
        }
        let what = "the machine does not say what it computes at, and the job has computations without a duration";
        Err(Diagnostic::new("AHBM-C193", what)
            .hint("set pe.roofline.peak_tflops and pe.roofline.memory_gbs, or name its accelerator to ahbm calibrate"))
    }

    /// What a SIP computes at.
    pub fn roofline(&self) -> &Roofline {
        &self.roofline
    }
}
