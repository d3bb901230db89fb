//! What a kernel takes by the roofline alone.

use ahbm_machine::Roofline;
use ahbm_workload::{Arithmetic, Kernel};

/// How long a kernel takes, in ps: the longer of its operations at the peak of their type and its bytes at the
/// bandwidth of the memory, or of the host's link (S. Williams et al., CACM 52(4), 2009), and what it takes to start
/// it. One that states nothing takes nothing.
pub(super) fn bare(roofline: &Roofline, kernel: &Kernel) -> f64 {
    if kernel.is_empty() {
        return 0.0;
    }
    let arithmetic = ratio(kernel.operations, roofline.operations_per_ns * share(roofline, kernel.arithmetic));
    let moving = ratio(kernel.bytes, if kernel.host { roofline.host_bytes_per_ns } else { roofline.bytes_per_ns });
    (arithmetic.max(moving) * 1000.0).ceil() + roofline.launch as f64
}

/// The peak of a type as a share of that of types of two bytes.
pub(super) fn share(roofline: &Roofline, arithmetic: Arithmetic) -> f64 {
    match arithmetic {
        Arithmetic::Half => 1.0,
        Arithmetic::F32 => roofline.f32_share,
        Arithmetic::Tf32 => roofline.tf32_share,
        Arithmetic::F64 => roofline.f64_share,
        Arithmetic::Byte => roofline.byte_share,
    }
}

/// Nanoseconds of so much at a rate; nothing takes none, whatever the rate.
fn ratio(amount: u64, per_ns: f64) -> f64 {
    if amount == 0 { 0.0 } else { amount as f64 / per_ns }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const MACHINE: Roofline = Roofline {
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
        let of = |arithmetic| bare(&MACHINE, &Kernel { arithmetic, ..Kernel::new(1000, 0) });
        let taken = Arithmetic::ALL.map(of);
        assert_eq!(taken, [1007.0, 8007.0, 2007.0, 4007.0, 507.0]);
    }

    #[test]
    fn bytes_go_over_the_memory_or_over_the_host_link() {
        assert_eq!(bare(&MACHINE, &Kernel::new(0, 100)), 1007.0);
        assert_eq!(bare(&MACHINE, &Kernel { host: true, ..Kernel::new(0, 100) }), 10_007.0);
        assert_eq!(bare(&MACHINE, &Kernel::new(1000, 200)), 2007.0);
        assert_eq!(bare(&MACHINE, &Kernel::default()), 0.0);
        assert_eq!(bare(&Roofline::default(), &Kernel::new(1 << 40, 1 << 40)), 0.0);
    }
}
