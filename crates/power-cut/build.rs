//! Compiles the recorder twice: as a library to preload, and as an object that a test program links.

#![allow(clippy::expect_used, reason = "a build without the recorder is useless")]

use std::path::Path;

fn main() {
    let source = "src/recorder.c";
    println!("cargo::rerun-if-changed={source}");
    let mut build = cc::Build::new();
    build.file(source).warnings(true).warnings_into_errors(true).pic(true);
    let objects = build.compile_intermediates();
    let object = objects.first().expect("one object");
    let library = Path::new(&std::env::var_os("OUT_DIR").expect("set by cargo")).join("recorder.so");
    let mut linker = build.get_compiler().to_command();
    let linked = linker.arg("-shared").arg("-o").arg(&library).arg(object).status().expect("a C compiler");
    assert!(linked.success(), "the recorder cannot be linked");
    // Read by build scripts of dependents as DEP_PETASOS_POWER_CUT_OBJECT.
    println!("cargo::metadata=object={}", object.display());
    // The tests of this crate record themselves.
    println!("cargo::rustc-link-arg-tests={}", object.display());
}
