//! Bytes that come in and go out: what the readers of files and the writers of views share.
//!
//! Post-execution traces are a view, algorithms and jobs are sources, and all of them are Chakra files. So the schema of
//! Chakra stands below both, with the protobuf wire format that the Perfetto view needs as well, and a view depends on
//! no reader.
//!
//! ```
//! use ahbm_wire::chakra::{Metadata, Names, Node, NodeKind, encode};
//! use ahbm_wire::protobuf::Reader;
//!
//! let node = Node { duration_micros: 7, ..Node::new(1, "add", NodeKind::Comp) };
//! let bytes = encode(&Metadata::default(), std::slice::from_ref(&node));
//!
//! let (mut file, mut names) = (Reader::new(&bytes), Names::default());
//! assert!(file.message().expect("metadata").is_empty());
//! let again = Node::read(file.message().expect("a message"), &mut names).expect("a node");
//! assert_eq!(again, node);
//! ```
//!
//! YAML is read for machines and for networks of others alike: a bounded tree whose nodes know their lines.
//!
//! Reading order: [`protobuf`], [`chakra`] (the messages of a trace, and the names of its files), [`yaml`], [`load`],
//! [`store`].

pub mod chakra;
pub mod load;
pub mod protobuf;
pub mod store;
pub mod yaml;
