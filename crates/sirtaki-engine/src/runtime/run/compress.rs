//! Copies into a buffer and back, through a smaller type where a tensor travels in one.

use half::{bf16, f16, slice::HalfFloatSliceExt};
use sirtaki_comm::kernel;

use crate::decide::request::Compression;

/// Copies a tensor into the buffer.
pub(super) fn put(place: &mut [u8], tensor: &[u8], compression: Option<Compression>) {
    match compression {
        None => kernel::copy(place, tensor),
        Some(Compression::F16) => {
            bytemuck::cast_slice_mut::<u8, f16>(place).convert_from_f32_slice(bytemuck::cast_slice(tensor));
        }
        Some(Compression::BF16) => {
            bytemuck::cast_slice_mut::<u8, bf16>(place).convert_from_f32_slice(bytemuck::cast_slice(tensor));
        }
    }
}

/// Copies a tensor back from the buffer.
pub(super) fn get(tensor: &mut [u8], place: &[u8], compression: Option<Compression>) {
    match compression {
        None => kernel::copy(tensor, place),
        Some(Compression::F16) => {
            bytemuck::cast_slice::<u8, f16>(place).convert_to_f32_slice(bytemuck::cast_slice_mut(tensor));
        }
        Some(Compression::BF16) => {
            bytemuck::cast_slice::<u8, bf16>(place).convert_to_f32_slice(bytemuck::cast_slice_mut(tensor));
        }
    }
}
