//! Makes Rust of the files in `proto`, without `protoc`.

use std::error::Error;

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};

/// The files of the protocol, from this crate.
const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let mut compiler = protox::Compiler::new([PROTO])?;
    compiler.include_imports(true).include_source_info(false).open_file("csi.proto")?;
    let registration = protox::compile(["registration.proto"], [PROTO])?;
    tonic_prost_build::configure().compile_fds(registration)?;
    tonic_prost_build::configure()
        .btree_map(".")
        .generate_default_stubs(true) // What Pliant does not serve answers UNIMPLEMENTED.
        .skip_debug(messages_with_secrets(&compiler.descriptor_pool())?)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// The messages that nobody may print, by their full names.
fn messages_with_secrets(pool: &DescriptorPool) -> Result<Vec<String>, Box<dyn Error>> {
    let mark = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .ok_or("csi.proto has no csi_secret option")?;
    let is_secret = |field: &FieldDescriptor| field.options().has_extension(&mark);
    let has_secrets = |message: &MessageDescriptor| message.fields().any(|f| is_secret(&f));
    Ok(pool
        .all_messages()
        .filter(has_secrets)
        .map(|message| format!(".{}", message.full_name()))
        .collect())
}
