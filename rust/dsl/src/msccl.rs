//! MSCCLang.
