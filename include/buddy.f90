! Compressed GPU memory for Fortran 2003: the calls of buddy.h with handles, and those of
! buddy_targets.h. Compile this module with the program and link with -lbuddy_targets.
!
!   use buddy
!   integer(buddy_handle) :: field
!   call buddy_check(buddy_malloc(field, bytes, buddy_target_2x, "planes64"//c_null_char), "field")
!
! Device memory is a number (buddy_device_ptr), as c_devptr of CUDA Fortran transferred to an integer, or what
! acc_deviceptr gives. Streams are c_null_ptr for the default one.
module buddy
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer, parameter :: buddy_handle = c_int64_t, buddy_device_ptr = c_int64_t

    enum, bind(c)
        enumerator :: buddy_target_1x = 0, buddy_target_4_3x, buddy_target_2x, buddy_target_4x, buddy_target_16x
    end enum

    type, bind(c) :: buddy_statistics
        integer(c_int64_t) :: bytes, entries, device_bytes, buddy_bytes, classes(6), overflowing, faulty_entry
    end type

    ! Memory to be sized: `codec` is c_loc of a string that ends in c_null_char, `classes` 0 or device memory.
    type, bind(c) :: buddy_span
        integer(buddy_device_ptr) :: data = 0
        integer(c_size_t) :: bytes = 0
        type(c_ptr) :: codec = c_null_ptr
        integer(buddy_device_ptr) :: classes = 0
    end type

    type, bind(c) :: buddy_sizes
        integer(c_int64_t) :: classes(6), optimistic_bytes
    end type

    ! A row of a targets file; buddy_string copies its strings.
    type, bind(c) :: buddy_targets_row
        type(c_ptr) :: name, call_site, codec
        integer(c_int64_t) :: bytes, device_bytes, buddy_bytes, ranges, changes
    end type

    ! A sparse matrix of host memory in compressed rows. Rows and columns are counted from 0: `starts` are c_loc of
    ! 64-bit, `indices` of 32-bit integers, `values` of reals of `value_bytes` bytes.
    type, bind(c) :: buddy_csr_arrays
        integer(c_int32_t) :: rows = 0, columns = 0
        type(c_ptr) :: starts = c_null_ptr, indices = c_null_ptr, values = c_null_ptr
        integer(c_int32_t) :: value_bytes = 8, reserved = 0
    end type

    interface
        integer(c_int) function buddy_malloc(handle, bytes, target, codec) bind(c, name="buddyMalloc")
            import
            integer(buddy_handle), intent(out) :: handle
            integer(c_size_t), value :: bytes
            integer(c_int), value :: target
            character(kind=c_char), intent(in) :: codec(*)
        end function
        integer(c_int) function buddy_free(handle) bind(c, name="buddyFree")
            import
            integer(buddy_handle), value :: handle
        end function
        integer(c_int) function buddy_write(handle, offset, from, bytes, stream) bind(c, name="buddyWrite")
            import
            integer(buddy_handle), value :: handle
            integer(c_size_t), value :: offset, bytes
            integer(buddy_device_ptr), value :: from
            type(c_ptr), value :: stream
        end function
        integer(c_int) function buddy_read(handle, offset, to, bytes, stream) bind(c, name="buddyRead")
            import
            integer(buddy_handle), value :: handle
            integer(c_size_t), value :: offset, bytes
            integer(buddy_device_ptr), value :: to
            type(c_ptr), value :: stream
        end function
        integer(c_int) function buddy_read_checked(handle, offset, to, bytes, stream) &
            bind(c, name="buddyReadChecked")
            import
            integer(buddy_handle), value :: handle
            integer(c_size_t), value :: offset, bytes
            integer(buddy_device_ptr), value :: to
            type(c_ptr), value :: stream
        end function
        integer(c_int) function buddy_retarget(handle, target, stream) bind(c, name="buddyRetarget")
            import
            integer(buddy_handle), value :: handle
            integer(c_int), value :: target
            type(c_ptr), value :: stream
        end function
        integer(c_int) function buddy_stats(handle, stats, stream) bind(c, name="buddyStats")
            import
            integer(buddy_handle), value :: handle
            type(buddy_statistics), intent(out) :: stats
            type(c_ptr), value :: stream
        end function
        ! Writes the BuddyView of the device header to `view_bytes` bytes at `view`.
        integer(c_int) function buddy_view(handle, view, view_bytes) bind(c, name="buddyView")
            import
            integer(buddy_handle), value :: handle
            type(c_ptr), value :: view
            integer(c_size_t), value :: view_bytes
        end function
        integer(c_int) function buddy_histograms(spans, count, sizes, stream) bind(c, name="buddyHistograms")
            import
            integer(c_size_t), value :: count
            type(buddy_span), intent(in) :: spans(*)
            type(buddy_sizes), intent(out) :: sizes(*)
            type(c_ptr), value :: stream
        end function
        integer(c_int) function buddy_csr_create(matrix, arrays) bind(c, name="buddyCsrCreate")
            import
            integer(buddy_handle), intent(out) :: matrix
            type(buddy_csr_arrays), intent(in) :: arrays
        end function
        integer(c_int) function buddy_csr_bytes(matrix, packed, plain) bind(c, name="buddyCsrBytes")
            import
            integer(buddy_handle), value :: matrix
            integer(c_int64_t), intent(out) :: packed, plain
        end function
        integer(c_int) function buddy_csr_multiply(matrix, x, y, columns, stream) bind(c, name="buddyCsrMultiply")
            import
            integer(buddy_handle), value :: matrix
            integer(buddy_device_ptr), value :: x, y
            integer(c_size_t), value :: columns
            type(c_ptr), value :: stream
        end function
        ! x and y are c_loc of reals in host memory.
        integer(c_int) function buddy_csr_multiply_host(matrix, x, y, columns) &
            bind(c, name="buddyCsrMultiplyHost")
            import
            integer(buddy_handle), value :: matrix
            type(c_ptr), value :: x, y
            integer(c_size_t), value :: columns
        end function
        integer(c_int) function buddy_csr_destroy(matrix) bind(c, name="buddyCsrDestroy")
            import
            integer(buddy_handle), value :: matrix
        end function
        type(c_ptr) function buddy_last_message() bind(c, name="buddyGetLastErrorMessage")
            import
        end function
        integer(c_int) function buddy_targets_open(path, targets) bind(c, name="buddyTargetsOpen")
            import
            character(kind=c_char), intent(in) :: path(*)
            type(c_ptr), intent(inout) :: targets
        end function
        subroutine buddy_targets_close(targets) bind(c, name="buddyTargetsClose")
            import
            type(c_ptr), value :: targets
        end subroutine
        integer(c_size_t) function buddy_targets_count(targets) bind(c, name="buddyTargetsCount")
            import
            type(c_ptr), value :: targets
        end function
        integer(c_int) function buddy_targets_get(targets, index, row) bind(c, name="buddyTargetsGet")
            import
            type(c_ptr), value :: targets
            integer(c_size_t), value :: index
            type(buddy_targets_row), intent(out) :: row
        end function
        integer(c_int) function buddy_targets_malloc(targets, name, bytes, handle) &
            bind(c, name="buddyTargetsMalloc")
            import
            type(c_ptr), value :: targets
            character(kind=c_char), intent(in) :: name(*)
            integer(c_size_t), value :: bytes
            integer(buddy_handle), intent(out) :: handle
        end function
        integer(c_int) function buddy_targets_change(targets, snapshot, stream) bind(c, name="buddyTargetsChange")
            import
            type(c_ptr), value :: targets
            integer(c_int64_t), value :: snapshot
            type(c_ptr), value :: stream
        end function
        integer(c_size_t) function buddy_string_length(text) bind(c, name="strlen")
            import
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! Returns a copy of a string of C.
    function buddy_string(pointer) result(string)
        type(c_ptr), intent(in) :: pointer
        character(len=:), allocatable :: string
        character(kind=c_char), pointer :: text(:)
        integer(c_size_t) :: length, i
        length = buddy_string_length(pointer)
        call c_f_pointer(pointer, text, [length])
        allocate(character(len=length) :: string)
        do i = 1, length
            string(i:i) = text(i)
        end do
    end function

    ! Returns the message of the thread's last failure.
    function buddy_message() result(message)
        character(len=:), allocatable :: message
        message = buddy_string(buddy_last_message())
    end function

    ! Ends the program with the message of a failed call.
    subroutine buddy_check(code, call)
        integer(c_int), intent(in) :: code
        character(len=*), intent(in) :: call
        if (code /= 0) then
            print '(a,": ",a)', call, buddy_message()
            error stop 1
        end if
    end subroutine
end module
