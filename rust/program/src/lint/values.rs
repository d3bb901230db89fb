//! `AHBM-L109`: values are defined before they are read.

use super::{Findings, first_users, label};
use crate::{AgentId, Body, Comm, OpKind, Program};
use ahbm_findings::Diagnostic;

#[derive(Clone, Copy)]
enum State {
    Undefined,
    /// Posted by this operation, not yet awaited.
    Posted(usize),
    Defined,
}

pub(super) fn check(program: &Program, alike: &[u32], findings: &mut Findings) {
    for (index, user) in first_users(program, alike).into_iter().enumerate() {
        if let Some(user) = user {
            check_body(program, &program.bodies[index], user, findings);
        }
    }
}

fn check_body(program: &Program, body: &Body, user: AgentId, findings: &mut Findings) {
    let mut state = vec![State::Undefined; body.values as usize];
    for (index, op) in body.ops.iter().enumerate() {
        for value in op.kind.operands().reads.into_iter().flatten() {
            let slot = &mut state[value.0 as usize];
            let found = *slot;
            if matches!(found, State::Defined) {
                continue;
            }
            // One finding per cause, not one per later reader.
            *slot = State::Defined;
            findings.add("AHBM-L109", |code| {
                let here = |d: Diagnostic| d.site(label(program, user, index), program.origin_text(user, index));
                match found {
                    State::Posted(post) => here(Diagnostic::new(
                        code,
                        format!("value %{} is read before its receive was waited for", value.0),
                    ))
                    .site(label(program, user, post), program.origin_text(user, post))
                    .hint("call tl.wait on the future and use what it returns"),
                    _ => here(Diagnostic::new(code, format!("value %{} is read before it is defined", value.0)))
                        .hint("load, receive or compute the value before this operation"),
                }
            });
        }
        match op.kind {
            OpKind::Comm(Comm::PostRecv { dst, .. }) => state[dst.0 as usize] = State::Posted(index),
            OpKind::Comm(Comm::Await { value }) => {
                if matches!(state[value.0 as usize], State::Undefined) {
                    findings.add("AHBM-L109", |code| {
                        Diagnostic::new(code, format!("no receive was posted for value %{}", value.0))
                            .site(label(program, user, index), program.origin_text(user, index))
                            .hint("post it with tl.recv_async before waiting for it")
                    });
                }
                state[value.0 as usize] = State::Defined;
            }
            _ => {
                if let Some(dst) = op.defines() {
                    state[dst.0 as usize] = State::Defined;
                }
            }
        }
    }
}
