//! Bring your own algorithm: files the field already writes, to and from the waist.
//!
//! A reader turns bytes into a plan of [`ahbm_plan`], which knows no machine, or into a workload of calls. Every reader
//! promises, whatever the bytes:
//!
//! 1. It is bounded by a [`ahbm_plan::Budget`] before it allocates: over it is `AHBM-B2xx`, with the option that
//!    raises it.
//! 2. Malformed input is `AHBM-F1xx` with a line, a JSON pointer or a byte offset; an operation that exists
//!    but is not supported is `AHBM-U2xx` and names it. Nothing is dropped in silence.
//! 3. Every operation of the program knows where it was written.
//!
//! ```
//! use ahbm_formats::{Document, Reading, msccl_xml};
//! use ahbm_plan::Collective;
//!
//! let text = r#"<algo name="pair" nchunksperloop="1" ngpus="2" coll="broadcast" inplace="1" outofplace="0">
//!   <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
//!     <tb id="0" send="1" recv="-1" chan="0"><step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0"/></tb>
//!   </gpu>
//!   <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">
//!     <tb id="0" send="-1" recv="0" chan="0"><step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0"/></tb>
//!   </gpu>
//! </algo>"#;
//! let reading = Reading::default();
//! let plan = msccl_xml::read(text.as_bytes(), "pair.xml", &reading.budget).expect("a plan");
//! let document = Document::msccl(plan);
//! assert_eq!((document.format(), document.algorithm.goal().name()), ("msccl_xml", Collective::Broadcast.name()));
//!
//! let findings = msccl_xml::read(b"<algo/>", "empty.xml", &reading.budget).unwrap_err();
//! assert_eq!((findings[0].code, &*findings[0].sites[0].origin), ("AHBM-F114", "empty.xml:1"));
//! ```
//!
//! Reading order: one module per format ([`msccl_xml`], [`mscclpp`], [`chakra`], [`pytorch`]), [`schedules`] of synthesizers; [`document`] is
//! all algorithms behind one door, [`jobs`] all training jobs, [`convert`] the way from one plan to another.

pub mod chakra;
pub mod convert;
pub mod document;
pub mod format;
pub mod jobs;
pub mod msccl_xml;
pub mod mscclpp;
pub mod packed;
pub mod pytorch;
mod scan;
pub mod schedules;

pub use document::{Document, Reading, Source};
pub use format::Format;
