! Allocates by a targets file on the stand-in driver.
program allocate_by_targets
    use buddy
    implicit none
    interface
        subroutine stub_current(on) bind(c, name="stubCurrent")
            import
            integer(c_int), value :: on
        end subroutine
    end interface
    type(c_ptr) :: targets = c_null_ptr
    type(buddy_statistics) :: found
    type(buddy_targets_row) :: row
    type(buddy_sizes) :: sizes(1)
    integer(c_int8_t), target :: view(4096)
    integer(buddy_handle) :: heat
    character(len=4096) :: path
    call stub_current(1_c_int)
    if (buddy_targets_open("none.toml"//c_null_char, targets) /= 1) error stop 2
    print '(a)', buddy_message()
    call get_command_argument(1, path)
    call buddy_check(buddy_targets_open(trim(path)//c_null_char, targets), "open")
    call buddy_check(buddy_targets_malloc(targets, "heat"//c_null_char, 0_c_size_t, heat), "heat")
    call buddy_check(buddy_stats(heat, found, c_null_ptr), "stats")
    print '(i0,1x,i0,1x,i0)', buddy_targets_count(targets), found%bytes, found%entries
    call buddy_check(buddy_targets_get(targets, 1_c_size_t, row), "get")
    print '(a,1x,a,1x,i0,1x,i0)', buddy_string(row%name), buddy_string(row%codec), row%bytes, row%changes
    if (buddy_targets_get(targets, 2_c_size_t, row) == 0) error stop 3
    if (buddy_view(heat, c_loc(view), 1_c_size_t) == 0) error stop 4
    print '(a)', buddy_message()
    if (buddy_histograms([buddy_span(bytes=128)], 1_c_size_t, sizes, c_null_ptr) == 0) error stop 5
    call buddy_check(buddy_free(heat), "free")
    call buddy_targets_close(targets)
    call multiply
contains
    ! The matrix (1.5 0 2; 0 -4 0) times two columns.
    subroutine multiply
        integer(c_int64_t), target :: starts(3) = [0, 2, 3]
        integer(c_int32_t), target :: indices(3) = [0, 2, 1]
        real(c_double), target :: values(3) = [1.5d0, 2d0, -4d0]
        real(c_double), target :: x(2, 3) = reshape([1d0, 10d0, 2d0, 20d0, 3d0, 30d0], [2, 3]), y(2, 2)
        integer(buddy_handle) :: matrix
        integer(c_int64_t) :: packed, plain
        call buddy_check(buddy_csr_create(matrix, &
            buddy_csr_arrays(2, 3, c_loc(starts), c_loc(indices), c_loc(values))), "create")
        call buddy_check(buddy_csr_bytes(matrix, packed, plain), "bytes")
        call buddy_check(buddy_csr_multiply_host(matrix, c_loc(x), c_loc(y), 2_c_size_t), "multiply")
        if (buddy_csr_multiply(matrix, 0_buddy_device_ptr, 0_buddy_device_ptr, 9_c_size_t, c_null_ptr) == 0) error stop 6
        call buddy_check(buddy_csr_destroy(matrix), "destroy")
        print '(i0,4(1x,f0.1))', plain, y
    end subroutine
end program
