! Allocates a row of a targets file on a GPU: same_fortran TARGETS NAME. Prints its bytes and those in use.
program same
    use buddy
    implicit none
    interface
        integer(c_int) function cuda_free(memory) bind(c, name="cudaFree")
            import
            type(c_ptr), value :: memory
        end function
    end interface
    type(c_ptr) :: targets = c_null_ptr
    type(buddy_statistics) :: found
    integer(buddy_handle) :: memory
    character(len=4096) :: path, name
    if (cuda_free(c_null_ptr) /= 0) error stop 2 ! the runtime's context becomes current
    call get_command_argument(1, path)
    call get_command_argument(2, name)
    call buddy_check(buddy_targets_open(trim(path)//c_null_char, targets), "open")
    call buddy_check(buddy_targets_malloc(targets, trim(name)//c_null_char, 0_c_size_t, memory), trim(name))
    call buddy_check(buddy_stats(memory, found, c_null_ptr), "stats")
    print '(i0,1x,i0,1x,i0)', found%bytes, found%entries, found%device_bytes
    call buddy_check(buddy_free(memory), "free")
    call buddy_targets_close(targets)
end program
