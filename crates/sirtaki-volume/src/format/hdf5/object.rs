//! What is open in the library, safe to use: every value is closed when it is dropped.

use std::{
    ffi::{CString, c_char, c_int, c_uint, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use super::{
    api::{Api, Id, Identify},
    library::Library,
};

/// The library's number for properties that are as usual.
const USUAL: Id = 0;
/// Bytes that the library may write about an object; it writes fewer than 256.
const ABOUT: usize = 1024;
/// Longest name of a link, and of a filter.
const NAME: usize = 1024;
/// Axes that a dataset can have at most.
const AXES: usize = 32;
/// The number of datasets in chunks, among ways to store them.
const CHUNKED: i64 = 2;

/// What something in a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Group,
    Dataset,
    Other,
}

/// How the voxels of a dataset are stored.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) chunk: Option<Vec<u64>>,
    pub(super) filters: Vec<Filter>,
}

/// What chunks go through.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) id: i32,
    pub(super) name: String,
    /// Its first setting.
    pub(super) level: u32,
    /// Whether the library has it.
    pub(super) available: bool,
}

/// Something that is open.
#[derive(Debug)]
pub(super) struct Object {
    library: &'static Library,
    id: Id,
}

impl Drop for Object {
    fn drop(&mut self) {
        let id = self.id;
        // What cannot be closed stays open until the process ends.
        // SAFETY: the library checks whether it knows the number.
        let _ = self.library.call(|api| unsafe { (api.release)(id) }.into());
    }
}

impl Object {
    /// A file, for reading.
    pub(super) fn file(library: &'static Library, path: &Path) -> Result<Self, String> {
        const READ_ONLY: c_uint = 0;
        let path = text(path.as_os_str().as_bytes())?;
        // SAFETY: the path ends with a zero byte.
        let id = library.call(|api| unsafe { (api.open_file)(path.as_ptr(), READ_ONLY, USUAL) })?;
        Ok(Self { library, id })
    }

    /// A call about this object, which gives a number.
    fn ask(&self, function: impl FnOnce(&Api, Id) -> i64) -> Result<i64, String> {
        self.library.call(|api| function(api, self.id))
    }

    /// A call about this object, which opens another one.
    fn other(&self, function: impl FnOnce(&Api, Id) -> Id) -> Result<Self, String> {
        Ok(Self { library: self.library, id: self.ask(function)? })
    }

    /// What has this name in a file or group.
    pub(super) fn open(&self, name: &str) -> Result<Self, String> {
        let name = text(name.as_bytes())?;
        // SAFETY: the name ends with a zero byte.
        self.other(|api, id| unsafe { (api.open_object)(id, name.as_ptr(), USUAL) })
    }

    pub(super) fn kind(&self) -> ObjectKind {
        // SAFETY: the library checks whether it knows the number.
        match self.ask(|api, id| unsafe { (api.kind)(id) }.into()) {
            Ok(2) => ObjectKind::Group,
            Ok(5) => ObjectKind::Dataset,
            _ => ObjectKind::Other,
        }
    }

    /// Something that is the same for two names of one object, and different for two objects.
    pub(super) fn identity(&self) -> Option<Vec<u8>> {
        const BASIC: c_uint = 1;
        let mut about = [0_u64; ABOUT / 8];
        let address: *mut c_void = about.as_mut_ptr().cast();
        let mut words = 0;
        let asked = self.ask(|api, id| match api.identify {
            Some(Identify::Token(function)) => {
                words = 3;
                // SAFETY: there is more memory than the library writes to, aligned as it expects it.
                unsafe { function(id, address, BASIC) }.into()
            }
            Some(Identify::Address(function)) => {
                words = 2;
                // SAFETY: the same.
                unsafe { function(id, address) }.into()
            }
            None => -1,
        });
        // The number of the file, and the address in it: 8 bytes, or a token of 16.
        asked.ok().map(|_| about[..words].iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    /// How many links a group has.
    pub(super) fn links(&self) -> Result<u64, String> {
        let mut about = [0_u64; ABOUT / 8];
        // SAFETY: there is more memory than the library writes to, aligned as it expects it.
        self.ask(|api, id| unsafe { (api.group)(id, about.as_mut_ptr().cast()) }.into())?;
        // The way in which it is stored, and behind that the number.
        Ok(about[1])
    }

    /// The name of a link of a group, by its place in their order.
    pub(super) fn link(&self, number: u64) -> Result<String, String> {
        let mut name = [0_u8; NAME];
        // SAFETY: the name of the group ends with a zero byte, and memory has the length that is told.
        let length = self.ask(|api, id| unsafe {
            (api.link_name)(id, c".".as_ptr(), 0, 0, number, name.as_mut_ptr().cast::<c_char>(), NAME, USUAL) as i64
        })?;
        let name = usize::try_from(length).ok().and_then(|length| name.get(..length));
        let name = name.and_then(|name| String::from_utf8(name.to_vec()).ok());
        name.ok_or_else(|| format!("the name of link {number} is too long or no text"))
    }

    /// The sizes of a dataset.
    pub(super) fn shape(&self) -> Result<Vec<u64>, String> {
        // SAFETY: the library checks whether this is a dataset.
        self.other(|api, id| unsafe { (api.dataset_space)(id) })?.sizes()
    }

    /// The sizes of a space.
    fn sizes(&self) -> Result<Vec<u64>, String> {
        let mut sizes = [0; AXES];
        // SAFETY: the library checks whether this is a space.
        let axes = self.ask(|api, id| unsafe { (api.axes)(id) }.into())?;
        let axes = usize::try_from(axes).ok().filter(|axes| *axes <= AXES).ok_or("it has too many axes")?;
        // SAFETY: there is memory for as many axes as a space can have.
        self.ask(|api, id| unsafe { (api.sizes)(id, sizes.as_mut_ptr(), ptr::null_mut()) }.into())?;
        Ok(sizes[..axes].to_vec())
    }

    /// The type of the voxels of a dataset.
    pub(super) fn type_of_dataset(&self) -> Result<Self, String> {
        // SAFETY: the library checks whether this is a dataset.
        self.other(|api, id| unsafe { (api.dataset_type)(id) })
    }

    /// The type of an attribute.
    pub(super) fn type_of_attribute(&self) -> Result<Self, String> {
        // SAFETY: the library checks whether this is an attribute.
        self.other(|api, id| unsafe { (api.attribute_type)(id) })
    }

    /// An attribute, if there is one of this name.
    pub(super) fn attribute(&self, name: &str) -> Option<Self> {
        let name = text(name.as_bytes()).ok()?;
        // SAFETY: the name ends with a zero byte.
        let there = self.ask(|api, id| unsafe { (api.attribute_exists)(id, name.as_ptr()) }.into()).ok()? > 0;
        // SAFETY: the same.
        there.then(|| self.other(|api, id| unsafe { (api.open_attribute)(id, name.as_ptr(), USUAL) }).ok()).flatten()
    }

    /// The values of an attribute that has a few of them, as elements of a type in memory of so many bytes.
    pub(super) fn values(&self, memory: &Self, width: usize) -> Result<Vec<u8>, String> {
        // SAFETY: the library checks whether this is an attribute.
        let sizes = self.other(|api, id| unsafe { (api.attribute_space)(id) })?.sizes()?;
        let count = sizes.iter().try_fold(1_u64, |count, size| count.checked_mul(*size));
        let count = count.filter(|count| *count <= AXES as u64).ok_or("it has too many values")?;
        if memory.size()? != width {
            return Err("its elements have another size".to_owned());
        }
        let mut bytes = vec![0; count as usize * width];
        // SAFETY: there is memory for all elements, whose size was checked.
        self.ask(|api, id| unsafe { (api.read_attribute)(id, memory.id, bytes.as_mut_ptr().cast()) }.into())?;
        Ok(bytes)
    }

    /// How a dataset of so many axes is stored.
    pub(super) fn storage(&self, axes: usize) -> Result<Storage, String> {
        // SAFETY: the library checks whether this is a dataset.
        let properties = self.other(|api, id| unsafe { (api.dataset_properties)(id) })?;
        // SAFETY: the library checks what it is given, here and below.
        if properties.ask(|api, id| unsafe { (api.storage)(id) }.into())? != CHUNKED {
            return Ok(Storage::default());
        }
        let mut sizes = [0; AXES];
        // SAFETY: there is memory for as many axes as are told.
        properties.ask(|api, id| unsafe { (api.chunk)(id, AXES as c_int, sizes.as_mut_ptr()) }.into())?;
        // SAFETY: as above.
        let count = properties.ask(|api, id| unsafe { (api.filters)(id) }.into())?;
        let filters = (0..count as u32).map(|number| properties.filter(number)).collect::<Result<_, _>>()?;
        Ok(Storage { chunk: sizes.get(..axes).map(<[u64]>::to_vec), filters })
    }

    /// A filter of properties.
    fn filter(&self, number: u32) -> Result<Filter, String> {
        let (mut name, mut settings) = ([0_u8; NAME], [0; 1]);
        let (mut flags, mut count, mut about) = (0, settings.len(), 0);
        // SAFETY: memory has the lengths that are told; the library ends the name with a zero byte within them.
        let id = self.ask(|api, id| unsafe {
            let (settings, name) = (settings.as_mut_ptr(), name.as_mut_ptr().cast::<c_char>());
            (api.filter)(id, number, &mut flags, &mut count, settings, NAME, name, &mut about).into()
        })?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        let id = id as i32;
        // SAFETY: any number may be asked for.
        let available = self.ask(|api, _| unsafe { (api.has_filter)(id) }.into()).is_ok_and(|found| found > 0);
        Ok(Filter { id, name, level: settings[0], available })
    }

    /// Reads a box of a dataset as elements of a type in memory.
    pub(super) fn read(&self, memory: &Self, part: (&[u64], &[u64]), out: &mut [u8]) -> Result<(), String> {
        const SET: c_int = 0;
        let (start, size) = part;
        // SAFETY: the library checks whether this is a dataset.
        let there = self.other(|api, id| unsafe { (api.dataset_space)(id) })?;
        let needed = size.iter().try_fold(memory.size()? as u64, |bytes, size| bytes.checked_mul(*size));
        if there.sizes()?.len() != size.len() || start.len() != size.len() || needed != Some(out.len() as u64) {
            return Err("it has changed since it was opened".to_owned());
        }
        // SAFETY: there are as many numbers as the space has axes; the library takes each voxel, where it is told no step.
        there.ask(|api, id| unsafe {
            (api.select)(id, SET, start.as_ptr(), ptr::null(), size.as_ptr(), ptr::null()).into()
        })?;
        // SAFETY: there are as many sizes as are told.
        let here =
            self.other(|api, _| unsafe { (api.create_space)(size.len() as c_int, size.as_ptr(), ptr::null()) })?;
        // SAFETY: memory has the size of the box in elements of this type.
        self.ask(|api, id| unsafe {
            (api.read_dataset)(id, memory.id, here.id, there.id, USUAL, out.as_mut_ptr().cast()).into()
        })?;
        Ok(())
    }

    /// The class of a type.
    pub(super) fn class(&self) -> Result<i64, String> {
        // SAFETY: the library checks whether this is a type, here and below.
        self.ask(|api, id| unsafe { (api.type_class)(id) }.into())
    }

    /// The bytes of an element of a type.
    pub(super) fn size(&self) -> Result<usize, String> {
        // SAFETY: as above; it gives 0 where that is not known.
        let size = self.ask(|api, id| match unsafe { (api.type_size)(id) } {
            0 => -1,
            size => i64::try_from(size).unwrap_or(-1),
        })?;
        usize::try_from(size).map_err(|_| "its elements are too large".to_owned())
    }

    /// Whether integers of a type have a sign.
    pub(super) fn is_signed(&self) -> Result<bool, String> {
        // SAFETY: as above.
        Ok(self.ask(|api, id| unsafe { (api.type_sign)(id) }.into())? == 1)
    }

    /// Where floating-point numbers of a type have their sign, exponent and mantissa: bits, and how many.
    pub(super) fn fields(&self) -> Result<[usize; 5], String> {
        let mut fields = [0; 5];
        let [sign, exponent, exponent_bits, mantissa, mantissa_bits] = &mut fields;
        self.ask(|api, id| {
            // SAFETY: as above; it writes five numbers.
            unsafe { (api.type_fields)(id, sign, exponent, exponent_bits, mantissa, mantissa_bits) }.into()
        })?;
        Ok(fields)
    }

    /// The value that a name has in an enumeration of bytes.
    pub(super) fn value_of(&self, name: &str) -> Option<u8> {
        if self.size().ok()? != 1 {
            return None;
        }
        let (name, mut value) = (text(name.as_bytes()).ok()?, 0_u8);
        // SAFETY: as above; the name ends with a zero byte, and a value has one.
        self.ask(|api, id| unsafe { (api.type_value)(id, name.as_ptr(), (&raw mut value).cast()) }.into()).ok()?;
        Some(value)
    }

    /// The same type.
    pub(super) fn copy(&self) -> Result<Self, String> {
        // SAFETY: as above.
        self.other(|api, id| unsafe { (api.copy_type)(id) })
    }

    /// The same type in this machine's byte order.
    pub(super) fn native(&self) -> Result<Self, String> {
        let copy = self.copy()?;
        let order = c_int::from(cfg!(target_endian = "big"));
        // SAFETY: as above; only the copy changes.
        copy.ask(|api, id| unsafe { (api.set_order)(id, order) }.into())?;
        Ok(copy)
    }

    /// A type of integers that uses all bits that it has.
    pub(super) fn whole(self) -> Result<Self, String> {
        let bits = self.size()? * 8;
        // SAFETY: as above; nobody else has this type.
        self.ask(|api, id| unsafe { (api.set_precision)(id, bits) }.into())?;
        Ok(self)
    }
}

fn text(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|_| "its name has a zero byte".to_owned())
}
