//! The meetings of a block's threads for which the author asked become operations.

use super::model::{Code, Op};

/// Operations with a meeting before and after those that say so.
pub(super) fn spell_out(ops: Vec<Op>) -> Vec<Op> {
    let mut out = Vec::with_capacity(ops.len() * 2);
    for mut op in ops {
        let (meet, place) = (std::mem::take(&mut op.meet), op.place);
        if let Some(body) = &mut op.body {
            body.ops = spell_out(std::mem::take(&mut body.ops));
        }
        if meet.before {
            out.push(Op::new(Code::Nop, place));
        }
        out.push(op);
        if meet.after {
            out.push(Op::new(Code::Nop, place));
        }
    }
    out
}
