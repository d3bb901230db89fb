//! What the kernels of a training job take: the one clock of computations.

use crate::declared::Topology;
use crate::rate::Ps;
use crate::{Diagnostic, Machine};

/// The type that operations are done in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Arithmetic {
    /// Two bytes: f16, bf16.
    #[default]
    Half,
    /// Four bytes, in full precision.
    F32,
    /// Four bytes, multiplied in ten bits.
    Tf32,
    /// Eight bytes.
    F64,
    /// One byte: f8, i8.
    Byte,
}

impl Arithmetic {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Half, Self::F32, Self::Tf32, Self::F64, Self::Byte];

    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Half => "f16",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F64 => "f64",
            Self::Byte => "f8",
        }
    }

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// Arithmetic operations, 0 where unknown.
    pub operations: u64,
    /// The type that they are done in.
    pub arithmetic: Arithmetic,
    /// Bytes read and written, 0 where unknown.
    pub bytes: u64,
    /// It copies the bytes between the device and its host.
    pub host: bool,
}

impl Kernel {
    /// So many operations and bytes.
    pub const fn new(operations: u64, bytes: u64) -> Self {
        Self { operations, bytes, arithmetic: Arithmetic::Half, host: false }
    }

    /// Whether it states nothing.
    pub fn is_empty(&self) -> bool {
        (self.operations, self.bytes) == (0, 0)
    }
}

/// What a SIP computes at. All but the start of a kernel may be infinite.
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

    /// How long a kernel takes, in ps: the longer of its operations at the peak of their type and its bytes at the
    /// bandwidth of the memory, or of the host's link (S. Williams et al., CACM 52(4), 2009), and what it takes to start
    /// it. One that states nothing takes nothing.
    pub fn ps(&self, kernel: &Kernel) -> f64 {
        if kernel.is_empty() {
            return 0.0;
        }
        let share = match kernel.arithmetic {
            Arithmetic::Half => 1.0,
            Arithmetic::F32 => self.f32_share,
            Arithmetic::Tf32 => self.tf32_share,
            Arithmetic::F64 => self.f64_share,
            Arithmetic::Byte => self.byte_share,
        };
        let arithmetic = ratio(kernel.operations, self.operations_per_ns * share);
        let moving = ratio(kernel.bytes, if kernel.host { self.host_bytes_per_ns } else { self.bytes_per_ns });
        (arithmetic.max(moving) * 1000.0).ceil() + self.launch as f64
    }
}

/// Nanoseconds of so much at a rate; nothing takes none, whatever the rate.
fn ratio(amount: u64, per_ns: f64) -> f64 {
    if amount == 0 { 0.0 } else { amount as f64 / per_ns }
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

    /// What the kernels of a training job take on a SIP.
    pub fn roofline(&self) -> &Roofline {
        &self.roofline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Roofline = Roofline {
        operations_per_ns: 1000.0,
        bytes_per_ns: 100.0,
        host_bytes_per_ns: 10.0,
        launch: 7,
        f64_share: 0.25,
        f32_share: 0.125,
        tf32_share: 0.5,
        byte_share: 2.0,
    };

    #[test]
    fn operations_take_what_the_peak_of_their_type_says() {
        let of = |arithmetic| MACHINE.ps(&Kernel { arithmetic, ..Kernel::new(1000, 0) });
        let taken = Arithmetic::ALL.map(of);
        assert_eq!(taken, [1007.0, 8007.0, 2007.0, 4007.0, 507.0]);
    }

    #[test]
    fn bytes_go_over_the_memory_or_over_the_host_link() {
        assert_eq!(MACHINE.ps(&Kernel::new(0, 100)), 1007.0);
        assert_eq!(MACHINE.ps(&Kernel { host: true, ..Kernel::new(0, 100) }), 10_007.0);
        assert_eq!(MACHINE.ps(&Kernel::new(1000, 200)), 2007.0);
        assert_eq!(MACHINE.ps(&Kernel::default()), 0.0);
        assert_eq!(Roofline::default().ps(&Kernel::new(1 << 40, 1 << 40)), 0.0);
    }

    #[test]
    fn types_have_names_of_their_own() {
        for known in Arithmetic::ALL {
            assert_eq!(Arithmetic::named(known.name()), Some(known));
        }
        assert_eq!(Arithmetic::named("f128"), None);
    }
}
