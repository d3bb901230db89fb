//! The one clock of computations: what the kernels of a training job take.

use super::bare::bare;
use super::law;
use ahbm_machine::{Compute, Roofline};
use ahbm_workload::{Kernel, Kind};

/// How long a kernel takes, in ps: by the law of its class on a machine that has one, else by the roofline.
pub(super) fn ps(roofline: &Roofline, compute: Option<&Compute>, kernel: &Kernel) -> f64 {
    match compute {
        Some(compute) if kernel.kind != Kind::Plain => law::ps(roofline, compute, kernel),
        _ => bare(roofline, kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare::tests::MACHINE;
    use super::*;

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
