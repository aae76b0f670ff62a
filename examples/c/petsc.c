/*
 * A packed sparse matrix as a shell matrix of PETSc: real double values, one process. For vectors on the
 * GPU, take VecCUDAGetArrayRead, VecCUDAGetArrayWrite and buddyCsrMultiply. Not built by our tests.
 */
#include <buddy.h>
#include <petscmat.h>

static PetscErrorCode multiply(Mat shell, Vec x, Vec y)
{
    buddyHandle *matrix;
    const PetscScalar *from;
    PetscScalar *to;
    PetscFunctionBeginUser;
    PetscCall(MatShellGetContext(shell, &matrix));
    PetscCall(VecGetArrayRead(x, &from));
    PetscCall(VecGetArrayWrite(y, &to));
    buddyError error = buddyCsrMultiplyHost(*matrix, from, to, 1);
    PetscCheck(!error, PETSC_COMM_SELF, PETSC_ERR_LIB, "%s", buddyGetLastErrorMessage());
    PetscCall(VecRestoreArrayWrite(y, &to));
    PetscCall(VecRestoreArrayRead(x, &from));
    PetscFunctionReturn(PETSC_SUCCESS);
}
/* MatCreateShell(PETSC_COMM_SELF, n, n, n, n, &matrix, &shell);
   MatShellSetOperation(shell, MATOP_MULT, (void (*)(void))multiply); */
