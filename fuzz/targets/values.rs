//! Values of the command line that the core reads: each line of the text is an override `KEY=VALUE` of the default
//! topology, or else a name of a direction, a protocol, an element type or a collective.
#![no_main]

use ahbm_machine::{Direction, Machine};
use ahbm_plan::{Goal, Protocol};
use ahbm_program::Dtype;
use libfuzzer_sys::fuzz_target;

const TOPOLOGY: &str = include_str!("../../python/ahbm/data/topology.yaml");

fuzz_target!(|text: &str| {
    let (mut overrides, mut names) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.split_once('=') {
            Some((key, value)) => overrides.push((key.to_owned(), value.to_owned())),
            None => names.push(line),
        }
    }
    for name in names {
        if let Some(direction) = Direction::parse(name) {
            assert_eq!(Direction::parse(&direction.to_string()), Some(direction), "a direction's name is its own");
        }
        if let Some(kind) = Dtype::parse(name) {
            assert_eq!(kind.name(), name);
        }
        let _ = Protocol::parse(name);
        let _ = Goal::parse(name);
    }
    if !overrides.is_empty()
        && let Err(findings) = Machine::from_yaml(TOPOLOGY, "fuzz.yaml", &overrides)
    {
        ahbm_fuzz::told(&findings);
    }
});
