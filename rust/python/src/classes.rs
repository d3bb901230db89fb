//! Captures a kernel for every cube of every rank, by class where that is possible.
//!
//! One call with symbolic integers records what all places do that take the same path. A second call with plain ones, at
//! another place of the class, must record what the formulas say there. The places that take another path are grouped by
//! where they leave, and the lowest place of the largest group is called next. Nothing is trusted: where a call with
//! symbolic integers fails, or where the formulas are wrong, every place is called with plain ones.

use crate::draft::{Draft, State, Subject, renumber};
use crate::errors::{self, is_final};
use crate::kernel;
use crate::logs::{self, Part};
use crate::origin;
use ahbm_findings::Diagnostic;
use ahbm_machine::Coord;
use ahbm_program::formula::Axis;
use ahbm_program::{Body, Condition, Formulas};
use indexmap::IndexMap;
use log::{debug, info};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxBuildHasher;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Places of those that are called alone at which a kernel is called twice; the first and the last are among them.
const REPEATED: usize = 8;

/// Classes that are tried before their size is looked at.
const TRIED: usize = 64;

/// Places of a class, on average, that pay for its two calls; a smaller group is called place by place.
const WORTH: usize = 4;

/// A kernel and the places of its launch. Place `rank * cubes + cube` is a cube of a rank.
pub(crate) struct Everywhere<'a, 'py> {
    pub(crate) draft: &'a Draft,
    pub(crate) subject: Subject<'a, 'py>,
    /// Arguments before the rank.
    pub(crate) before: &'a Bound<'py, PyTuple>,
    /// The same for calls that repeat one.
    pub(crate) again: &'a Bound<'py, PyTuple>,
    /// Arguments behind the rank.
    pub(crate) after: &'a Bound<'py, PyTuple>,
    pub(crate) ranks: u32,
    pub(crate) cubes: u32,
}

/// The bodies so far.
struct Found {
    bodies: Vec<Option<Body>>,
    /// Places that were called alone, in this order.
    alone: Vec<u32>,
    /// Lines at which places have left a path, and how many.
    parted: IndexMap<String, usize, FxBuildHasher>,
    calls: u64,
}

/// Places that have taken the same path so far.
struct Group {
    places: Vec<u32>,
    /// Conditions that all of them fulfil: the first ones of a class.
    path: Arc<[Condition]>,
    fulfil: usize,
}

impl Group {
    /// How many of these conditions its places are known to fulfil.
    fn knows(&self, conditions: &[Condition]) -> usize {
        self.path[..self.fulfil].iter().zip(conditions).take_while(|(known, asked)| known == asked).count()
    }
}

impl<'py> Everywhere<'_, 'py> {
    /// The body of every place, and the number of `tl` calls at all of them.
    pub(crate) fn capture(&self, py: Python<'py>, by_class: bool) -> PyResult<(Vec<Body>, u64)> {
        let count = self.ranks as usize * self.cubes as usize;
        let nothing = || Found { bodies: vec![None; count], alone: Vec::new(), parted: IndexMap::default(), calls: 0 };
        let mut found = nothing();
        if by_class && count > 1 {
            logs::refresh(py, &[Part::Capture]);
            if let Some(line) = self.by_class(py, &mut found)? {
                found = nothing();
                let name = kernel::name_of(self.subject.kernel);
                info!(
                    target: "ahbm::capture",
                    "{name} is captured rank by rank: with a symbolic rank it does something else at {line}"
                );
            }
        }
        self.call_all(py, count as u32, &mut found)?;
        let most = found.parted.iter().rev().max_by_key(|(_, places)| **places);
        if let Some((line, _)) = most.filter(|_| found.alone.len() > count / 2) {
            let name = kernel::name_of(self.subject.kernel);
            info!(
                target: "ahbm::capture",
                "{name} is captured rank by rank: its ranks take different paths at {line}"
            );
        }
        self.call_twice(py, &found)?;
        let bodies = found.bodies.into_iter().map(|body| body.expect("every place was called")).collect();
        Ok((bodies, found.calls))
    }

    /// Whether the bodies of all places are those with these numbers. The finding is `AHBM-K216`.
    pub(crate) fn compare(&self, expected: &[u32], bodies: &[Body], state: &State) -> Result<(), Diagnostic> {
        for (place, (&first, again)) in (0..).zip(expected.iter().zip(bodies)) {
            let Some(first) = state.builder.body_at(first) else {
                return Err(Diagnostic::new("AHBM-C204", format!("body {first} of {}", state.bodies.len())));
            };
            if first != again {
                return Err(self.subject.unlike(self.coord(place), [first, again], &state.builder.origins));
            }
        }
        Ok(())
    }

    fn coord(&self, place: u32) -> Coord {
        Coord { sip: place / self.cubes, cube: place % self.cubes, pe: 0 }
    }

    /// The body that the call at a place records with plain integers, and the number of its `tl` calls.
    fn called(&self, py: Python<'py>, place: u32, before: &Bound<'py, PyTuple>) -> PyResult<(Body, u64)> {
        let at = self.coord(place);
        let rank = at.sip.into_pyobject(py)?.into_any();
        let recorded = self.draft.record(py, &self.subject, at, None, |_| self.arguments(before, rank))?;
        let calls = recorded.calls;
        Ok((self.draft.origins(py, |origins| self.subject.body(recorded, at, origins))?, calls))
    }

    /// Raises `AHBM-B126` where `places` more places with so many calls each are too many calls.
    fn afford(&self, py: Python<'py>, found: &Found, calls: u64, places: usize) -> PyResult<()> {
        let (most, all) = (self.draft.all_ops, found.calls.saturating_add(calls.saturating_mul(places as u64)));
        if all <= most {
            return Ok(());
        }
        let name = kernel::name_of(self.subject.kernel);
        let what =
            format!("{name} makes {calls} tl calls at a place, more than {most} at {} places", found.bodies.len());
        let hint = "fewer ranks, or an algorithm of fewer steps";
        Err(errors::raise_one(py, Diagnostic::new("AHBM-B126", what).hint(hint)))
    }

    fn call_alone(&self, py: Python<'py>, place: u32, found: &mut Found) -> PyResult<()> {
        let (body, calls) = self.called(py, place, self.before)?;
        self.afford(py, found, calls, 1)?;
        found.bodies[place as usize] = Some(body);
        found.calls += calls;
        found.alone.push(place);
        Ok(())
    }

    /// Calls the kernel at all places below `end` that have no body yet.
    fn call_all(&self, py: Python<'py>, end: u32, found: &mut Found) -> PyResult<()> {
        for place in 0..end {
            if found.bodies[place as usize].is_none() {
                self.call_alone(py, place, found)?;
            }
        }
        Ok(())
    }

    /// Calls some of those that were called alone a second time. Backwards, so that a kernel that counts its calls meets
    /// another count everywhere.
    fn call_twice(&self, py: Python<'py>, found: &Found) -> PyResult<()> {
        let count = found.alone.len();
        let most = count.min(REPEATED);
        for at in (0..most).rev() {
            let place = found.alone[at * (count - 1) / (most - 1).max(1)];
            let (again, _) = self.called(py, place, self.again)?;
            let first = found.bodies[place as usize].as_ref().expect("it was called");
            if *first != again {
                return Err(self.unlike(py, place, [first, &again])?);
            }
        }
        Ok(())
    }

    fn unlike(&self, py: Python<'py>, place: u32, bodies: [&Body; 2]) -> PyResult<PyErr> {
        let finding = self.draft.origins(py, |origins| self.subject.unlike(self.coord(place), bodies, origins))?;
        Ok(errors::raise_one(py, finding))
    }

    /// Captures classes until every place has a body, or until that does not pay. Returns a line at which symbolic
    /// integers do not do what plain ones do; then nothing that was found counts.
    fn by_class(&self, py: Python<'py>, found: &mut Found) -> PyResult<Option<String>> {
        let all = Group { places: (0..found.bodies.len() as u32).collect(), path: Arc::default(), fulfil: 0 };
        let tried = (found.bodies.len() / 8).clamp(WORTH, TRIED);
        // The largest group first, of equal ones that with the lowest place.
        let mut waiting = BTreeMap::from([((Reverse(all.places.len()), 0), all)]);
        let mut formulas = Formulas::default();
        let (mut classes, mut covered) = (0, 0);
        while let Some(((Reverse(size), place), group)) = waiting.pop_first() {
            if classes > 0 && size < WORTH || classes >= tried && covered < WORTH * classes {
                break;
            }
            let at = self.coord(place);
            let outcome = self.draft.record(py, &self.subject, at, Some(formulas), |capture| {
                self.arguments(self.before, capture.coordinate(py, Axis::Sip, self.ranks)?)
            });
            let mut recorded = match outcome {
                Ok(recorded) => recorded,
                Err(error) if is_final(py, &error) => return Err(error),
                Err(error) => {
                    // It may be the kernel's own; then a call with plain integers raises it, too, at the lowest place.
                    self.call_all(py, place + 1, found)?;
                    if self.symbolic(py, place)?.is_some() {
                        return Err(error);
                    }
                    return Ok(Some(self.line_of(py, &error)));
                }
            };
            self.afford(py, found, recorded.calls, group.places.len())?;
            formulas = recorded.formulas;
            self.draft.origins(py, |origins| renumber(&mut recorded.class.body, &recorded.origins, origins))?;
            let places = |place| self.coord(place);
            let around = self.subject.around(&places);
            let known = group.knows(&recorded.class.conditions);
            let split = recorded.class.split(&formulas, &around, &group.places, known);
            let path: Arc<[Condition]> = recorded.class.conditions.into();
            for rest in split.rest {
                let line = recorded.asked.get(rest.fulfil).map_or("an address or a peer", |line| line);
                *found.parted.entry(line.to_owned()).or_default() += rest.agents.len();
                let group = Group { places: rest.agents, path: Arc::clone(&path), fulfil: rest.fulfil };
                waiting.insert((Reverse(group.places.len()), group.places[0]), group);
            }
            classes += 1;
            covered += split.members.len();
            if split.members.first().is_none_or(|(first, _)| *first != place) {
                return Ok(Some("a formula of its place".to_owned()));
            }
            let symbolic = &split.members[0].1;
            if split.members.len() == 1 {
                self.call_alone(py, place, found)?;
                if found.bodies[place as usize].as_ref() != Some(symbolic) {
                    self.repeat(py, place, symbolic)?;
                }
                continue;
            }
            if let Some(line) = self.verify(py, classes, &split.members)? {
                self.repeat(py, place, symbolic)?;
                return Ok(Some(line));
            }
            found.calls += recorded.calls * split.members.len() as u64;
            for (place, body) in split.members {
                found.bodies[place as usize] = Some(body);
            }
        }
        debug!(target: "ahbm::capture", "{covered} places take {classes} paths");
        Ok(None)
    }

    /// Calls the kernel at a place with symbolic integers again, where plain ones recorded something else than `first`,
    /// which the symbolic ones did. It may have looked behind them; then it does so twice.
    ///
    /// Raises `AHBM-K216` where it does something else the second time.
    fn repeat(&self, py: Python<'py>, place: u32, first: &Body) -> PyResult<()> {
        match self.symbolic(py, place)? {
            Some(again) if again != *first => Err(self.unlike(py, place, [first, &again])?),
            _ => Ok(()),
        }
    }

    /// The body of a place that a call with symbolic integers at it records when it repeats one; None where it raises.
    fn symbolic(&self, py: Python<'py>, place: u32) -> PyResult<Option<Body>> {
        let outcome = self.draft.record(py, &self.subject, self.coord(place), Some(Formulas::default()), |capture| {
            self.arguments(self.again, capture.coordinate(py, Axis::Sip, self.ranks)?)
        });
        let mut recorded = match outcome {
            Ok(recorded) => recorded,
            Err(error) if is_final(py, &error) => return Err(error),
            Err(_) => return Ok(None),
        };
        self.draft.origins(py, |origins| renumber(&mut recorded.class.body, &recorded.origins, origins))?;
        let places = |place| self.coord(place);
        let split = recorded.class.split(&recorded.formulas, &self.subject.around(&places), &[place], 0);
        Ok(split.members.into_iter().next().map(|(_, body)| body))
    }

    /// Calls one of the members of a class with plain integers, drawn by the number of the class; the first member is the
    /// one that the class was recorded for.
    fn verify(&self, py: Python<'py>, number: usize, members: &[(u32, Body)]) -> PyResult<Option<String>> {
        // A step of the SplitMix64 generator (Steele, Lea and Flood, OOPSLA 2014).
        let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let drawn = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
        let (place, body) = &members[1 + drawn as usize % (members.len() - 1)];
        let (again, first) = match self.called(py, *place, self.again) {
            Ok((again, _)) if again == *body => return Ok(None),
            Ok((again, _)) => (again, self.called(py, *place, self.before)),
            Err(error) if is_final(py, &error) => return Err(error),
            Err(error) => return Ok(Some(self.line_of(py, &error))),
        };
        match first {
            Ok((first, _)) if first != again => return Err(self.unlike(py, *place, [&first, &again])?),
            Err(error) if is_final(py, &error) => return Err(error),
            _ => {}
        }
        let end = kernel::origin_of(self.subject.kernel);
        let line = |origins: &mut _| kernel::parting(&end, [body, &again], origins).1[0].2.clone();
        Ok(Some(self.draft.origins(py, line)?))
    }

    /// The line of the kernel that raised an error, in a call of `tl` or by itself.
    fn line_of(&self, py: Python<'py>, error: &PyErr) -> String {
        let code = self.subject.kernel.getattr("__code__").ok();
        origin::of_error(py, &error.cause(py).unwrap_or_else(|| error.clone_ref(py)), code.as_ref())
    }

    fn arguments(&self, before: &Bound<'py, PyTuple>, rank: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let items: Vec<_> = before.iter().chain([rank]).chain(self.after.iter()).collect();
        PyTuple::new(before.py(), items)
    }
}
