//! The integration tests of this crate, in one binary.

mod chakra_corpus;
mod chakra_fold;
mod chakra_json;
mod chakra_read;
mod closed_forms;
mod convert;
mod msccl_check;
mod msccl_corpus;
mod msccl_lower;
mod msccl_read;
mod mscclpp_convert;
mod mscclpp_corpus;
mod mscclpp_plans;
mod nvls;
mod pytorch_files;
mod pytorch_host;
mod pytorch_hostile;
mod pytorch_kineto;
mod pytorch_lone;
mod pytorch_profile;
mod schedules;
mod support;
mod workload_write;
