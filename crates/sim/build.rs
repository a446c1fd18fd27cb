//! Links the recorder of file operations into the program and the tests, so that power cuts can be simulated.

#![allow(clippy::expect_used, reason = "a build without the recorder is useless")]

fn main() {
    let object =
        std::env::var("DEP_PETASOS_POWER_CUT_OBJECT").expect("set by the build script of petasos-power-cut");
    println!("cargo::rustc-link-arg-bins={object}");
    println!("cargo::rustc-link-arg-tests={object}");
}
