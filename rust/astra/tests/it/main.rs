//! Integration tests of ASTRA-sim's numbers.

mod corpus;
