//! Calls of one job under several protocols, with other network interfaces, or whose math is slower than the machine's: each
//! program with what it was made for.

use crate::errors;
use crate::machine::Machine;
use crate::program::Program;
use ahbm_program::Agent;
use indexmap::IndexMap;
use pyo3::prelude::*;
use std::sync::Arc;

/// Programs of a job, none where nothing runs, and the machine that they run on together.
pub(crate) struct Spoken {
    pub(crate) machine: Machine,
    pub(crate) programs: Vec<Option<Arc<ahbm_program::Program>>>,
}

/// The programs on `machine`. Each keeps the machine that it was made for, where calls find another one: with a rate of math,
/// network interfaces, and a protocol of their own.
///
/// # Errors
/// `AHBM-V125` for programs of other machines.
pub(crate) fn spoken<'a>(
    py: Python<'_>,
    machine: &Machine,
    programs: impl Iterator<Item = Option<&'a Program>>,
) -> PyResult<Spoken> {
    let chooses = !machine.inner.protocols().is_empty() && machine.inner.protocol().is_none();
    let hash = machine.inner.hash();
    let mut voices: IndexMap<u64, Machine> = IndexMap::new();
    // Calls share programs, by their addresses.
    let mut made: IndexMap<(*const ahbm_program::Program, u16), Arc<ahbm_program::Program>> = IndexMap::new();
    let programs = programs
        .map(|program| {
            let program = program?;
            let speaks = chooses && program.machine.protocol().is_some();
            if !speaks && (Arc::ptr_eq(&program.machine, &machine.inner) || program.machine.hash() == hash) {
                return Some(program.inner.clone());
            }
            let entry = voices.entry(program.machine.hash());
            let voice = u16::try_from(entry.index() + 1).unwrap_or(u16::MAX);
            entry.or_insert_with(|| program.given.clone());
            let own = made.entry((Arc::as_ptr(&program.inner), voice)).or_insert_with(|| {
                let agents = program.inner.agents.iter().map(|agent| Agent { voice, ..*agent }).collect();
                Arc::new(ahbm_program::Program { agents, ..ahbm_program::Program::clone(&program.inner) })
            });
            Some(own.clone())
        })
        .collect();
    if voices.is_empty() {
        return Ok(Spoken { machine: machine.clone(), programs });
    }
    let machine = machine.speaking(voices.into_values().collect()).map_err(|finding| errors::raise_one(py, finding))?;
    Ok(Spoken { machine, programs })
}
