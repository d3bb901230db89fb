//! Pass 2: the data of a run, replayed in the order pass 1 found.
//!
//! Effects happen in the order of (end time, agent, operation); what is posted is read then, and written when it
//! arrives. That order cannot matter when agents share no memory: end times are then not looked at, and an agent
//! runs until it has to wait; the result is the same to the last bit.
//!
//! Arithmetic is that of the operation's dtype: the types of two bytes and of one are computed in `f32` and rounded
//! once per operation to nearest even, integers wrap, NaN propagates through `max` and `min`. The bits *inside* a NaN are not specified;
//! everything else is equal on every machine.
//!
//! The kernels are written by hand because `ndarray` is not quicker where bits have to stay. Measured side by side on
//! two busy cores, arrays of 512 x 512, before sums of f16 ran on AVX-512 (`cargo bench -p ahbm-emulator --bench kernels`,
//! GiB/s, best of three runs):
//!
//! | | here | `ndarray`, in order of the indices |
//! |---|---|---|
//! | sum of two arrays, f32, f16 | 21.3, 1.7 | 21.7, 0.3 |
//! | sum along the first axis, f32, f16 | 23.3, 4.2 | 23.5, 0.7 |
//! | sum along the last axis, f32, f16 | 4.3, 1.8 | 1.7, 0.6 |
//!
//! Its `sum_axis` is quicker along the last axis (26.7), for it adds eight partial sums: another rounding than that of
//! the hardware's order.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-D190` | every agent waits though pass 1 finished: the timeline is inconsistent |
//! | `AHBM-D191` | timeline or memory belong to another program, or were not recorded |
//! | `AHBM-V306` | value read before it is defined |
//! | `AHBM-V302` | wait for a value no receive was posted for |
//! | `AHBM-V303` | operand of another dtype or size than the operation's tile |
//! | `AHBM-V304` | message of another dtype or size than its receive's tile |
//! | `AHBM-V305` | shapes that do not broadcast |
//! | `AHBM-V310` | integer division by zero |
//! | `AHBM-V311` | function not defined on its operands |
//! | `AHBM-B301` | a buffer or value the host cannot hold |

mod compute;
mod create;
mod element;
mod elementwise;
mod error;
mod float8;
mod image;
pub(crate) mod liveness;
pub(crate) mod math;
mod matrix;
mod memory;
mod observer;
mod parts;
mod pool;
mod prepared;
mod queue;
mod recipe;
mod reduce;
mod replay;
mod round;
pub(crate) mod shape;
mod sketch;
mod value;
mod vector;

pub use memory::Memory;
pub use observer::Access;
pub use prepared::{Prepared, replay};
pub use recipe::{Copied, Recipe};
