//! Sets the library's soname, so that programs look for `libbuddy.so` wherever it was when
//! they were linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // Not `rustc-cdylib-link-arg`: cargo passes that on to libraries that use this one.
        println!("cargo:rustc-link-arg=-Wl,-soname,libbuddy.so");
    }
}
