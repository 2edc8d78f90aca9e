//! Reading GGUF files: header, metadata and tensor directory, single or split, never trusting a length.

mod tensor_type;

pub use tensor_type::TensorType;
