//! The one clock of computations: what the kernels of a training job take.

use super::law;
use ahbm_machine::{Compute, Roofline};
use ahbm_workload::{Arithmetic, Kernel, Kind};

/// How long a kernel takes, in ps: by the law of its class on a machine that has one, else by the roofline.
pub(super) fn ps(roofline: &Roofline, compute: Option<&Compute>, kernel: &Kernel) -> f64 {
    match compute {
        Some(compute) if kernel.kind != Kind::Plain => law::ps(roofline, compute, kernel),
        _ => bare(roofline, kernel),
    }
}

/// By the roofline alone: the longer of its operations at the peak of their type and its bytes at the
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

    #[test]
    fn the_law_is_for_kernels_of_a_class_on_a_machine_that_has_one() {
        let text = "compute: {units: 2, clock_mhz: 1000, l2_mib: 1}";
        let machine = ahbm_machine::Machine::from_yaml(text, "t", &[]).unwrap();
        let plain = Kernel { dims: [3; 10], ..Kernel::new(1 << 30, 1 << 20) };
        assert_eq!(ps(&MACHINE, machine.compute(), &plain), bare(&MACHINE, &plain));
        for kind in Kind::ALL {
            let kernel = Kernel { kind, ..plain };
            assert_eq!(ps(&MACHINE, None, &kernel), bare(&MACHINE, &plain), "{kind:?}");
        }
        let kernel = Kernel { kind: Kind::Pointwise, ..plain };
        assert_ne!(ps(&MACHINE, machine.compute(), &kernel), bare(&MACHINE, &plain));
    }
}
