//! The tensor directory of one file: read, and checked against the file's length.

use super::cursor::Cursor;
use super::error::GgufError;
use super::tensor_type::TensorType;

/// llama.cpp allows 64; some converters write longer names.
const NAME_LIMIT_BYTES: u64 = 1024;

/// Name, two numbers and one dimension: no entry is smaller.
const LEAST_ENTRY_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// One tensor: its type, its shape, its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    /// In GGUF order: `shape[0]` is the row length. One to four dimensions, none zero.
    pub shape: Vec<u64>,
    pub ty: TensorType,
    /// Index into [`super::Gguf::parts`].
    pub part: u16,
    /// From the start of that part's file.
    pub offset: u64,
    pub bytes: u64,
}

impl TensorInfo {
    /// Rows: the product of all dimensions but the first.
    pub fn rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Elements of a row.
    pub fn row_len(&self) -> u64 {
        self.shape[0]
    }

    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows()
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Reads `count` entries and places them after the header: the cursor stands at the directory's start.
pub(super) fn read(
    cursor: &mut Cursor,
    count: u64,
    alignment: u64,
    part: u16,
    file_bytes: u64,
) -> Result<Vec<TensorInfo>, GgufError> {
    if count > cursor.remaining() / LEAST_ENTRY_BYTES {
        return Err(cursor.damaged(format!("the header promises {count} tensors, more than fit in the file")));
    }
    let mut tensors = Vec::new();
    for _ in 0..count {
        tensors.push(entry(cursor, part, alignment)?);
    }
    if tensors.is_empty() {
        return Ok(tensors);
    }
    let data_start =
        cursor.pos().checked_next_multiple_of(alignment).filter(|&start| start <= file_bytes).ok_or_else(|| {
            cursor.damaged(format!("the tensors' data would begin past the end of the file ({file_bytes} bytes)"))
        })?;
    for tensor in &mut tensors {
        let end = data_start.checked_add(tensor.offset).and_then(|start| start.checked_add(tensor.bytes));
        if end.is_none_or(|end| end > file_bytes) {
            return Err(GgufError::tensor(
                cursor.path,
                &tensor.name,
                format!(
                    "its {} bytes at {} of the data lie past the end of the file ({file_bytes} bytes); the file is damaged or incomplete, fetch it again",
                    tensor.bytes, tensor.offset
                ),
            ));
        }
        tensor.offset += data_start;
    }
    refuse_overlaps(cursor, &tensors)?;
    Ok(tensors)
}

fn entry(cursor: &mut Cursor, part: u16, alignment: u64) -> Result<TensorInfo, GgufError> {
    let name = cursor.name(NAME_LIMIT_BYTES, "a tensor's name")?;
    let wrong = |cursor: &Cursor, what: String| Err(GgufError::tensor(cursor.path, &name, what));
    let dims = cursor.u32("a tensor's dimensions")?;
    if !(1..=4).contains(&dims) {
        return wrong(
            cursor,
            format!("has {dims} dimensions, 1 to 4 are possible; the file is damaged, fetch it again"),
        );
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        shape.push(cursor.u64("a tensor's shape")?);
    }
    let id = cursor.u32("a tensor's type")?;
    let offset = cursor.u64("a tensor's offset")?;
    cursor.retain((size_of::<TensorInfo>() + 8 * shape.len()) as u64)?;

    if shape.contains(&0) {
        return wrong(cursor, format!("shape {shape:?} has a zero; the file is damaged, fetch it again"));
    }
    let ty = match TensorType::from_id(id) {
        Some(ty @ (TensorType::Q8_1 | TensorType::Q8_K)) => {
            return wrong(
                cursor,
                format!("{ty} is a type for activations, not for weights; take a file of another quantisation"),
            );
        }
        Some(ty) => ty,
        None => return wrong(cursor, format!("type number {id} is not known; take a file of another quantisation")),
    };
    let elements = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    if elements.is_none_or(|elements| elements > i64::MAX as u64) {
        return wrong(
            cursor,
            format!("shape {shape:?} is larger than any file can be; the file is damaged, fetch it again"),
        );
    }
    let Some(row_bytes) = ty.row_bytes(shape[0]) else {
        let block = ty.block_len();
        return wrong(
            cursor,
            format!(
                "rows of {} elements are not whole {ty} blocks of {block}; the file is damaged, fetch it again",
                shape[0]
            ),
        );
    };
    let rows: u64 = shape[1..].iter().product();
    let Some(bytes) = row_bytes.checked_mul(rows) else {
        return wrong(
            cursor,
            format!("shape {shape:?} is larger than any file can be; the file is damaged, fetch it again"),
        );
    };
    if !offset.is_multiple_of(alignment) {
        return wrong(
            cursor,
            format!(
                "offset {offset} is not a multiple of the alignment {alignment}; the file is damaged, fetch it again"
            ),
        );
    }
    Ok(TensorInfo { name, shape, ty, part, offset, bytes })
}

fn refuse_overlaps(cursor: &Cursor, tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if pair[0].offset + pair[0].bytes > pair[1].offset {
            return Err(GgufError::tensor(
                cursor.path,
                &pair[1].name,
                format!("overlaps {}; the file is damaged, fetch it again", super::error::printable(&pair[0].name)),
            ));
        }
    }
    Ok(())
}
