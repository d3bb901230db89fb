//! A 128-rank ring all-reduce: read, lower and lint; and written as an execution plan.

#[path = "../tests/it/support/ring.rs"]
mod ring;

use ahbm_formats::{msccl_xml, mscclpp};
use ahbm_machine::Machine;
use ahbm_plan::{Budget, LowerOptions};
use ahbm_program::{Dtype, lint};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn msccl(c: &mut Criterion) {
    let text = ring::ring_xml(128);
    let overrides = [("system.sips.count".to_string(), "128".to_string())];
    let machine = Machine::from_yaml("", "default", &overrides).expect("a valid machine");
    let options = LowerOptions::new(128 * 1024 * 2, Dtype::F16);
    let budget = Budget::default();
    let mut group = c.benchmark_group(format!("ring of 128, {} bytes of XML", text.len()));
    group.sample_size(20);
    let read = || msccl_xml::read(text.as_bytes(), "ring.xml", &budget).expect("a plan");
    group.bench_function("read", |b| b.iter(|| black_box(read())));
    let plan = read();
    group.bench_function("lower", |b| b.iter(|| black_box(plan.lower(&machine, &options).expect("it fits"))));
    group.bench_function("write as an execution plan", |b| {
        b.iter(|| {
            let json = mscclpp::from_plan(black_box(&plan), 2, &budget).expect("it can be said");
            black_box(mscclpp::write(&json).expect("it can be written"))
        });
    });
    group.bench_function("read, lower, lint", |b| {
        b.iter(|| {
            let lowered = read().lower(&machine, &options).expect("it fits");
            assert!(lint(black_box(&lowered.program), &machine).is_empty());
        });
    });
    group.finish();
}

criterion_group!(benches, msccl);
criterion_main!(benches);
